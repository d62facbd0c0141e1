"""Pages of mapped files go back, and nothing that was written is lost."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from surefoot.engine import mapped_pages
from surefoot.engine.mapped_pages import give_back_mapped

CONTENT = bytes(range(256)) * 16 * 32
"""32 pages of the usual size."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="smaps are Linux's")


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """The file as ONNX Runtime maps one: privately, to read and to write."""
    path.write_bytes(CONTENT)
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    with path.open("rb") as file:
        buffer = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=protection)
    try:
        assert sum(buffer[:: mmap.PAGESIZE]) == 0
        yield buffer
    finally:
        buffer.close()


def test_what_was_read_is_given_back_and_there_again(tmp_path: Path) -> None:
    with mapped(tmp_path / "weights.bin") as buffer:
        assert give_back_mapped(tmp_path) == len(CONTENT)
        assert give_back_mapped(tmp_path) == 0
        assert buffer[:] == CONTENT
        assert give_back_mapped(tmp_path) == len(CONTENT)


def test_a_mapping_that_was_written_to_keeps_its_pages(tmp_path: Path) -> None:
    with mapped(tmp_path / "weights.bin") as buffer:
        buffer[5000] = 7
        assert give_back_mapped(tmp_path) == 0
        assert buffer[5000] == 7


@pytest.mark.parametrize(
    "name", [b"caf\xe9", "a\u2028b".encode(), b"a\rb\fc", b"two  blanks", b"x (deleted)"]
)
def test_any_name_that_a_folder_may_have_is_found(tmp_path: Path, name: bytes) -> None:
    folder = tmp_path / os.fsdecode(name)
    folder.mkdir()
    with mapped(folder / "weights.bin") as buffer:
        assert give_back_mapped(folder) == len(CONTENT)
        (folder / "weights.bin").unlink()
        assert buffer[:] == CONTENT
        assert give_back_mapped(folder) == len(CONTENT)


def test_without_the_kernels_tables_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_pages, "SMAPS", tmp_path / "not there")
    with mapped(tmp_path / "weights.bin"):
        assert give_back_mapped(tmp_path) == 0


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    inside, beside = tmp_path / "graphs", tmp_path / "graphs-of-another"
    inside.mkdir()
    beside.mkdir()
    with mapped(beside / "weights.bin"):
        assert give_back_mapped(inside) == 0
