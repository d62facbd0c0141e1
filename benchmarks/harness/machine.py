"""What a run ran on, and whether that machine was its own."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BUSY_CORES = 0.35
"""Cores' worth of other work above which a run is refused. An idle desktop stays below 0.1; half a
core of two moved paired ratios by several percent."""
SAMPLE_S = 3.0
INTEGER_INSTRUCTIONS = (
    "amx_int8",
    "avx512_vnni",
    "avx_vnni",
    "avx512bw",
    "avx2",
    "i8mm",
    "asimddp",
)
"""As Linux names them, widest first."""


class BusyError(Exception):
    """Something else uses the processors."""


def describe() -> dict[str, Any]:
    """Processor, memory, system and Python; no names, no paths."""
    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "memory_gib": memory_gib(),
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
    }


def processor_name() -> str:
    """With the widest of its integer instructions: kernels are chosen by these, and virtual
    machines of very different processors have one name."""
    return name_from(read_text("/proc/cpuinfo"), platform.processor() or platform.machine())


def name_from(cpuinfo: str, otherwise: str) -> str:
    fields = dict(line.split(":", 1) for line in cpuinfo.splitlines() if ":" in line)
    told = {key.strip(): value.strip() for key, value in fields.items()}
    flags = told.get("flags", told.get("Features", "")).split()
    widest = next((flag for flag in INTEGER_INSTRUCTIONS if flag in flags), None)
    return told.get("model name", otherwise) + (f" ({widest})" if widest else "")


def memory_gib() -> float | None:
    for line in read_text("/proc/meminfo").splitlines():
        if line.startswith("MemTotal"):
            return round(int(line.split()[1]) / 2**20, 1)
    return None


def peak_memory_mib(pid: int) -> float | None:
    """The largest resident size a process has had (file pages included); None off Linux."""
    for line in read_text(f"/proc/{pid}/status").splitlines():
        if line.startswith("VmHWM"):
            return round(int(line.split()[1]) / 1024, 1)
    return None


def refuse_if_busy(limit_cores: float = BUSY_CORES) -> float | None:
    """Cores in use just now, or None where that cannot be told. Raises `BusyError`."""
    before = CpuTimes.now(())
    time.sleep(SAMPLE_S)
    used = CpuTimes.now(()).others_since(before)
    if used is not None and used > limit_cores:
        raise BusyError(
            f"{used:.2f} cores are busy with something else (limit {limit_cores}); "
            "wait, or pass --force and read the noise floor with care"
        )
    return used


class CpuTimes:
    """Processor seconds of the whole machine and of some processes, at a moment."""

    def __init__(self, at_s: float, machine_s: float | None, ours_s: float) -> None:
        self._at_s, self._machine_s, self._ours_s = at_s, machine_s, ours_s

    @classmethod
    def now(cls, pids: Sequence[int]) -> CpuTimes:
        tick = os.sysconf("SC_CLK_TCK")
        times = os.times()
        ours = times.user + times.system
        for pid in pids:
            ours += process_ticks(read_text(f"/proc/{pid}/stat")) / tick
        machine = busy_ticks(read_text("/proc/stat"))
        return cls(time.monotonic(), None if machine is None else machine / tick, ours)

    def others_since(self, before: CpuTimes) -> float | None:
        """Cores that others used on average since `before`; None where that cannot be told."""
        if self._machine_s is None or before._machine_s is None:
            return None
        busy = (self._machine_s - before._machine_s) - (self._ours_s - before._ours_s)
        return max(busy, 0.0) / max(self._at_s - before._at_s, 1e-9)


def busy_ticks(stat: str) -> int | None:
    """User, nice, system, interrupts and steal of the first line of `/proc/stat`."""
    fields = stat.partition("\n")[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[1:9])
    return user + nice + system + irq + softirq + steal


def process_ticks(stat: str) -> int:
    """User and system ticks of `/proc/PID/stat`; its second field may hold blanks."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0


def read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def package_versions(names: Sequence[str]) -> Mapping[str, str]:
    """Installed versions in this interpreter; packages that are missing are left out."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
