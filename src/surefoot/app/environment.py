"""What the environment and the machine say. Nothing below the command line reads either."""

from __future__ import annotations

import os
from pathlib import Path

from surefoot.loading.store.hub import Hub
from surefoot.loading.store.models import ModelStore

CPUS = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")


def model_store() -> ModelStore:
    """The store at `SUREFOOT_HOME`, or in the user's cache folder."""
    home = os.environ.get("SUREFOOT_HOME") or "~/.cache/surefoot"
    return ModelStore(Path(home).expanduser())


def model_hub() -> Hub:
    """The hub at `HF_ENDPOINT`, or the public one."""
    return Hub(os.environ.get("HF_ENDPOINT") or None)


def debugging() -> bool:
    """`SUREFOOT_DEBUG` asks for tracebacks."""
    return bool(os.environ.get("SUREFOOT_DEBUG"))


def num_cores(cpus: Path = CPUS, cgroup: Path = CGROUP) -> int:
    """Physical cores this process may use: those of its affinity mask, no more than a
    container's quota. Two threads of one core share the units that a forward keeps busy."""
    allowed = _allowed_cpus()
    cores = {_siblings(cpus, cpu) for cpu in allowed}
    return max(1, min(len(cores), _quota(cgroup / "cpu.max") or len(cores)))


def _allowed_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _siblings(cpus: Path, cpu: int) -> str:
    """A name for the core that `cpu` is a thread of."""
    try:
        return (cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota(path: Path) -> int | None:
    """Whole processors of a container's share; None where there is no limit."""
    try:
        share, period = path.read_text().split()
        return None if share == "max" else max(1, int(share) // int(period))
    except (OSError, ValueError):
        return None


def free_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = CGROUP) -> int | None:
    """Bytes that can be had without swapping, no more than a container's limit leaves; None
    where the system does not say."""
    known = [room for room in (_available(meminfo), _container_room(cgroup)) if room is not None]
    return min(known, default=None)


def _available(meminfo: Path) -> int | None:
    try:
        for line in meminfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _container_room(cgroup: Path) -> int | None:
    try:
        limit = int((cgroup / "memory.max").read_text())
        return max(0, limit - int((cgroup / "memory.current").read_text()))
    except (OSError, ValueError):  # no container, or its limit is "max"
        return None
