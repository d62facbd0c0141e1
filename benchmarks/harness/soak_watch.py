"""A process from outside while a soak goes on: its memory, threads and open files."""

from __future__ import annotations

import os
import re
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from harness.machine import read_text

PERIOD_S = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident memory in all and without file pages, MiB."""

    at_s: float
    resident_mib: float
    anonymous_mib: float
    threads: int
    files: int


def sample(pid: int, at_s: float) -> Sample | None:
    """None off Linux, or once the process has ended."""
    status = read_text(f"/proc/{pid}/status")
    found = dict(re.findall(r"^(VmRSS|RssAnon|Threads):\s+(\d+)", status, re.MULTILINE))
    try:
        files = len(os.listdir(f"/proc/{pid}/fd"))
        resident, anonymous = int(found["VmRSS"]), int(found["RssAnon"])
        return Sample(at_s, resident / 1024, anonymous / 1024, int(found["Threads"]), files)
    except (OSError, KeyError):
        return None


class Watch:
    """Samples a process once a second while the `with` block runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = time.monotonic()
        self._ended = threading.Event()
        self.samples: list[Sample] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_S):
            seen = sample(self._pid, time.monotonic() - self._began)
            if seen is not None:
                self.samples.append(seen)


def thirds(samples: Sequence[Sample], value: Callable[[Sample], float]) -> tuple[float, ...]:
    """The median of each third, in order. Raises `ValueError` for fewer than three samples."""
    if len(samples) < 3:
        raise ValueError(f"{len(samples)} samples are too few")
    size = len(samples) // 3
    parts = samples[:size], samples[size : 2 * size], samples[2 * size :]
    return tuple(statistics.median(map(value, part)) for part in parts)
