"""Cached graphs in use, outdated or left behind: what is removed, and when."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from surefoot.engine.graph_cache import (
    BUILDING,
    LEFTOVER_AFTER_S,
    Cleared,
    clear,
    hold,
    remove_unless_held,
    sweep,
)

TIMEOUT_S = 60.0


def put(folder: Path, size: int = 10) -> Path:
    folder.mkdir(parents=True)
    (folder / "packed.bin").write_bytes(b"x" * size)
    return folder


def age(folder: Path, seconds: float) -> None:
    then = folder.stat().st_mtime - seconds
    os.utime(folder, (then, then))


def test_what_is_held_stays_until_it_is_released(tmp_path: Path) -> None:
    folder = put(tmp_path / "a")
    first, second = hold(folder), hold(folder)
    assert not remove_unless_held(folder)
    first.release()
    assert not remove_unless_held(folder)
    assert (folder / "packed.bin").read_bytes() == b"x" * 10
    second.release()
    second.release()
    assert remove_unless_held(folder)
    assert not folder.exists()
    assert remove_unless_held(folder)
    with pytest.raises(FileNotFoundError):
        hold(folder)


def test_a_hold_ends_with_its_block(tmp_path: Path) -> None:
    folder = put(tmp_path / "a")
    with hold(folder):
        assert not remove_unless_held(folder)
    assert remove_unless_held(folder)


def test_a_hold_follows_the_folder_to_another_name(tmp_path: Path) -> None:
    with hold(put(tmp_path / "a")):
        (tmp_path / "a").rename(tmp_path / "b")
        assert not remove_unless_held(tmp_path / "b")


def test_a_hold_ends_with_its_process(tmp_path: Path) -> None:
    folder = put(tmp_path / "a")
    code = (
        "import sys, pathlib; from surefoot.engine.graph_cache import hold; "
        "held = hold(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert not remove_unless_held(folder)
        other.kill()
    assert remove_unless_held(folder)


def test_removers_and_holders_at_once(tmp_path: Path) -> None:
    """A hold that was had is a folder that is there, whole, until it is released."""
    folder = tmp_path / "a"
    done = threading.Event()
    torn: list[str] = []

    def keep_removing() -> None:
        while not done.is_set():
            remove_unless_held(folder)

    remover = threading.Thread(target=keep_removing)
    remover.start()
    try:
        for turn in range(200):
            fresh = put(tmp_path / f"fresh-{turn}")
            os.rename(fresh, folder)
            try:
                with hold(folder):
                    if not (folder / "packed.bin").is_file():
                        torn.append(f"turn {turn}")
            except FileNotFoundError:
                continue
            while folder.exists() and not remove_unless_held(folder):
                pass
    finally:
        done.set()
        remover.join(TIMEOUT_S)
    assert torn == []


def test_clear_takes_all_but_what_is_held(tmp_path: Path) -> None:
    root = tmp_path / "graphs"
    put(root / "a", 100)
    used = put(root / "b", 20)
    put(root / f"{BUILDING}c" / "graph", 3)
    with hold(used):
        assert clear(root) == Cleared(freed=103, num_kept=1, kept=20)
        assert [path.name for path in root.iterdir()] == ["b"]
    assert clear(root) == Cleared(freed=20, num_kept=0, kept=0)
    assert not root.exists()
    assert clear(root) == Cleared(0, 0, 0)


def test_a_sweep_takes_outdated_graphs_and_builds_that_nobody_holds(tmp_path: Path) -> None:
    """A build that was killed leaves its folder behind at whatever age: a program that is killed
    at each start would fill the disk."""
    for name in ("old", "old-in-use", "new"):
        put(tmp_path / name)
    killed, under_way, held_build = (f"{BUILDING}{name}" for name in ("killed", "now", "long"))
    for name in (killed, under_way, held_build):
        put(tmp_path / name)
    age(tmp_path / held_build, LEFTOVER_AFTER_S + 60)
    (tmp_path / "note").write_text("somebody's")
    with (
        hold(tmp_path / "old-in-use"),
        hold(tmp_path / held_build),
        hold(tmp_path / under_way),
    ):
        sweep(tmp_path, lambda folder: folder.name.startswith("old"))
    assert {path.name for path in tmp_path.iterdir()} == {
        "old-in-use",
        "new",
        under_way,
        held_build,
        "note",
    }


def test_nothing_to_sweep(tmp_path: Path) -> None:
    sweep(tmp_path / "none", lambda folder: True)
    assert not (tmp_path / "none").exists()
