"""What is read from the machine, from files that the test writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from surefoot.app.console import human_bytes
from surefoot.app.environment import free_memory, num_cores


def test_threads_of_one_core_count_once(tmp_path: Path) -> None:
    for cpu in range(1024):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text("0-1023\n")
    assert num_cores(cpus=tmp_path, cgroup=tmp_path) == 1


@pytest.mark.parametrize(("quota", "most"), [("150000 100000", 1), ("50000 100000", 1)])
def test_a_containers_share_is_the_limit(tmp_path: Path, quota: str, most: int) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert num_cores(cpus=tmp_path, cgroup=tmp_path) == most


@pytest.mark.parametrize("quota", ["max 100000", "", "nonsense"])
def test_no_share_is_no_limit(tmp_path: Path, quota: str) -> None:
    without = num_cores(cpus=tmp_path, cgroup=tmp_path / "none")
    (tmp_path / "cpu.max").write_text(quota)
    assert num_cores(cpus=tmp_path, cgroup=tmp_path) == without


def test_free_memory_is_what_the_container_leaves(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    assert free_memory(meminfo, tmp_path) is None
    meminfo.write_text("MemTotal:       100 kB\nMemAvailable:    50 kB\n")
    assert free_memory(meminfo, tmp_path) == 50 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert free_memory(meminfo, tmp_path) == 50 * 1024
    (tmp_path / "memory.max").write_text("3000\n")
    assert free_memory(meminfo, tmp_path) == 2000


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (98362432, "98.4 MB"), (2e15, "2000.0 TB")],
)
def test_human_bytes(count: float, text: str) -> None:
    assert human_bytes(count) == text
