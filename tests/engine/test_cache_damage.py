"""Cached graphs that changed under us: found out and made again, without harm to whoever runs from
them, and never another model's words."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from support.engine_runs import Steps, row
from support.tiny_models import TinyModel
from surefoot.config import EngineConfig
from surefoot.engine import packed_graph
from surefoot.engine.cached_files import SMALL_BYTES, FileMark, digest, digest_of, write_atomically
from surefoot.engine.engine import Engine
from surefoot.errors import EngineError
from surefoot.graph.spec import WeightSource
from surefoot.loading.gguf.model import load_gguf
from surefoot.loading.model import LoadedModel

CONFIG = EngineConfig(num_windows=2, capacity=64)
PROMPT = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_gguf(TinyModel(linear=Type.Q4_1).write(tmp_path_factory.mktemp("m") / "tiny.gguf"))


def engine_over(model: LoadedModel, graphs: Path) -> Engine:
    return Engine(model.spec, model.weights, model.fingerprint, graphs, CONFIG)


def answers(engine: Engine, num_rows: int) -> list[object]:
    results = Steps(engine).run(*(row(PROMPT, window=window) for window in range(num_rows)))
    return [result.error or (result.tokens, result.logprobs) for result in results]


def folder_of(graphs: Path) -> Path:
    (folder,) = graphs.iterdir()
    return folder


def zeros(content: bytearray) -> None:
    middle = len(content) // 2
    content[middle : middle + 4096] = bytes(len(content[middle : middle + 4096]))


def one_bit(content: bytearray) -> None:
    content[len(content) // 3] ^= 0x10


@pytest.mark.parametrize("change", [zeros, one_bit])
@pytest.mark.parametrize("name", ["packed.bin", "packed.onnx", "rows-1.*", "rows-2.*"])
def test_a_file_of_the_right_size_with_other_content_is_made_again(
    name: str, change: Callable[[bytearray], None], model: LoadedModel, tmp_path: Path
) -> None:
    first = engine_over(model, tmp_path)
    wanted = answers(first, 2)
    first.close()
    path = next(folder_of(tmp_path).glob(name))
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
    second = engine_over(model, tmp_path)
    assert answers(second, 2) == wanted
    second.close()


def test_a_damaged_graph_that_another_runs_from_is_left_to_it(
    model: LoadedModel, tmp_path: Path
) -> None:
    """Files for more rows that it has not opened yet are there when it wants them."""
    running = engine_over(model, tmp_path)
    alone = answers(running, 1)
    note = folder_of(tmp_path) / packed_graph.LAYOUTS
    whole = note.read_bytes()
    note.write_bytes(b"{}")
    with pytest.raises(EngineError, match="another program still runs from it"):
        engine_over(model, tmp_path)
    note.write_bytes(whole)
    assert answers(running, 2)[:1] == alone
    running.close()


def test_a_build_that_cannot_be_written_is_one_line(model: LoadedModel, tmp_path: Path) -> None:
    class Full:
        """A disk that fills up while weights are read."""

        def names(self) -> object:
            return model.weights.names()

        def load(self, name: str) -> object:
            raise OSError(28, "No space left on device")

    weights: WeightSource = Full()  # type: ignore[assignment]
    with pytest.raises(
        EngineError, match=r"cannot be made in the cache: .*No space left"
    ) as caught:
        Engine(model.spec, weights, model.fingerprint, tmp_path, CONFIG)
    assert caught.value.message.isprintable()
    assert list(tmp_path.iterdir()) == []


def test_notes_that_nest_without_end_are_damage(
    model: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine_over(model, tmp_path).close()
    (folder_of(tmp_path) / packed_graph.LAYOUTS).write_text("[" * 100_000)
    with caplog.at_level(logging.WARNING):
        engine_over(model, tmp_path).close()
    assert "building it anew" in caplog.text


@pytest.mark.parametrize("kind", ["file", "link to nowhere", "link to a folder"])
def test_a_name_that_is_taken_is_freed(kind: str, model: LoadedModel, tmp_path: Path) -> None:
    graphs, other = tmp_path / "graphs", tmp_path / "other"
    graphs.mkdir()
    place = graphs / packed_graph.cache_key(model.fingerprint, CONFIG.accuracy_level)
    other.mkdir()
    (other / "kept").write_text("somebody's")
    if kind == "file":
        place.write_text("x")
    else:
        place.symlink_to(other if kind == "link to a folder" else tmp_path / "nowhere")
    engine_over(model, graphs).close()
    assert place.is_dir()
    assert not place.is_symlink()
    assert (other / "kept").read_text() == "somebody's"


def test_what_others_may_read_they_can(model: LoadedModel, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        engine = engine_over(model, tmp_path)
        answers(engine, 2)
        engine.close()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder_of(tmp_path).iterdir()}
    assert set(modes.values()) == {0o644}, modes


def test_a_file_that_cannot_be_put_in_place_leaves_nothing(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "x").touch()
    with pytest.raises(OSError, match="taken"):
        write_atomically(taken, b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_large_file_is_read_when_its_time_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(SMALL_BYTES + 1))
    mark = FileMark.of(path)
    stat = path.stat()
    path.write_bytes(b"\1" + bytes(SMALL_BYTES))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert mark.fits(path)  # what is not read is not known
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert not mark.fits(path)
    path.write_bytes(bytes(SMALL_BYTES + 1))
    assert mark.fits(path)
    path.write_bytes(bytes(SMALL_BYTES))
    assert not mark.fits(path)


def test_the_two_ways_to_a_digest_are_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert digest_of(path) == digest(b"content")


def test_a_cache_that_may_not_be_written_is_done_without(
    model: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """(A folder below a file; permissions would not stop every user.)"""
    first = engine_over(model, tmp_path / "graphs")
    wanted = answers(first, 2)
    first.close()
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        second = engine_over(model, tmp_path / "file" / "graphs")
    assert answers(second, 2) == wanted
    second.close()
    assert "the cache cannot be written (Not a directory)" in caplog.text


def test_a_whole_cache_that_lacks_one_rows_graph_and_may_not_be_written_is_done_without(
    model: LoadedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = engine_over(model, tmp_path)
    wanted = answers(first, 1)
    first.close()
    (derived,) = tmp_path.rglob("rows-1.*.onnx")
    derived.unlink()
    write = packed_graph.write_atomically

    def refuse(path: Path, content: bytes) -> None:
        if path.is_relative_to(tmp_path):
            raise OSError(30, "Read-only file system")
        write(path, content)

    monkeypatch.setattr(packed_graph, "write_atomically", refuse)
    with caplog.at_level(logging.WARNING):
        second = engine_over(model, tmp_path)
    assert answers(second, 1) == wanted
    second.close()
    assert "the cache cannot be written (Read-only file system)" in caplog.text
    assert not list(tmp_path.rglob("rows-1.*.onnx"))


def test_rows_run_one_by_one_where_no_graph_for_several_can_be_made(
    model: LoadedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = engine_over(model, tmp_path)
    (alone,) = answers(engine, 1)
    tried: list[int] = []

    def refuse(graph: packed_graph.PackedGraph, num_rows: int) -> Path:
        tried.append(num_rows)
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(packed_graph.PackedGraph, "rows_path", refuse)
    for _ in range(2):
        assert answers(engine, 2) == [alone, alone]
    engine.close()
    assert tried == [2, 2]
    assert caplog.text.count("rows run one by one") == 1
