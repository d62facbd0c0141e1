"""The model on disk as packed once: used again, told apart, rebuilt when it is damaged."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from engine_runs import Steps, row
from surefoot.config import EngineConfig
from surefoot.engine.engine import Engine
from surefoot.engine.packed_graph import cache_key, open_packed
from surefoot.errors import ModelError
from surefoot.graph.spec import Weight
from surefoot.loading.gguf import load_gguf
from surefoot.loading.model import LoadedModel
from tiny_models import TinyModel

CONFIG = EngineConfig(num_windows=3, capacity=64)
PROMPT = [3, 1, 4, 1, 5]
TIMEOUT_S = 60.0


class Unreadable:
    """A source whose tensors nobody may ask for."""

    def names(self) -> Iterable[str]:
        return ()

    def load(self, name: str) -> Weight:
        raise ModelError(f"gone.gguf: tensor {name} is missing")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return load_gguf(TinyModel(linear=Type.Q4_1).write(path))


def answer(model: LoadedModel, graphs: Path, num_rows: int = 1, **changes: object) -> object:
    """What an engine over this cache says, closed again."""
    given = {
        "weights": model.weights,
        "fingerprint": model.fingerprint,
        "config": CONFIG,
        **changes,
    }
    engine = Engine(model.spec, cache_root=graphs, **given)  # type: ignore[arg-type]
    results = Steps(engine).run(*(row(PROMPT, window=window) for window in range(num_rows)))
    engine.close()
    return [result.error or (result.tokens, result.logprobs) for result in results]


def only_folder(graphs: Path) -> Path:
    (folder,) = graphs.iterdir()
    return folder


@pytest.mark.parametrize("num_rows", [1, 2])
def test_a_second_engine_reads_no_weight(model: LoadedModel, tmp_path: Path, num_rows: int) -> None:
    """Not even for a number of rows that the first never ran."""
    wanted = answer(model, tmp_path)
    assert answer(model, tmp_path, num_rows, weights=Unreadable())[:1] == wanted  # type: ignore[index]


def test_the_cache_folder_holds_nothing_else(model: LoadedModel, tmp_path: Path) -> None:
    answer(model, tmp_path / "new" / "graphs", 2)
    folder = only_folder(tmp_path / "new" / "graphs")
    assert folder.name == cache_key(model.fingerprint, 4)
    assert {path.name for path in folder.iterdir()} == {
        "layouts.json",
        "packed.bin",
        "packed.onnx",
        "rows-1.onnx",
        "rows-2.onnx",
    }


def test_the_key_tells_models_and_levels_apart(model: LoadedModel, tmp_path: Path) -> None:
    keys = {cache_key("a", 4), cache_key("b", 4), cache_key("a", 1)}
    assert len(keys) == 3
    assert cache_key("a", 4) == cache_key("a", 4)
    answer(model, tmp_path)
    answer(model, tmp_path, config=EngineConfig(capacity=64, accuracy_level=1))
    answer(model, tmp_path, fingerprint="another")
    assert len(list(tmp_path.iterdir())) == 3


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def scribble(path: Path) -> None:
    path.write_bytes(b"{}" + os.urandom(100))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (name, damage)
        for name in ("packed.bin", "packed.onnx", "layouts.json")
        for damage in (cut, empty, scribble, Path.unlink)
    ]
    + [("rows-1.onnx", cut), ("rows-1.onnx", empty), ("rows-1.onnx", scribble)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_damaged_file_is_built_anew(
    model: LoadedModel,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    damage: object,
) -> None:
    wanted = answer(model, tmp_path, 2)
    folder = only_folder(tmp_path)
    damage(folder / name)  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        assert answer(model, tmp_path, 2) == wanted
    assert "building it anew" in caplog.text
    caplog.clear()
    assert answer(model, tmp_path, 2, weights=Unreadable()) == wanted
    assert caplog.text == ""


@pytest.mark.parametrize("damage", [cut, empty, scribble])
def test_a_damaged_graph_for_more_rows_is_derived_anew(
    model: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: object
) -> None:
    wanted = answer(model, tmp_path, 2)
    damage(only_folder(tmp_path) / "rows-2.onnx")  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        assert answer(model, tmp_path, 2, weights=Unreadable()) == wanted
    assert "the graph for 2 rows does not load" in caplog.text


def test_weights_that_cannot_be_read_leave_nothing_behind(
    model: LoadedModel, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=r"gone\.gguf: tensor"):
        answer(model, tmp_path, weights=Unreadable())
    assert list(tmp_path.iterdir()) == []


class Meeting:
    """A source at whose first tensor two builders wait for each other."""

    def __init__(self, model: LoadedModel, barrier: threading.Barrier) -> None:
        self._weights = model.weights
        self._barrier = barrier
        self._met = False

    def names(self) -> Iterable[str]:
        return self._weights.names()

    def load(self, name: str) -> Weight:
        if not self._met:
            self._met = True
            self._barrier.wait(TIMEOUT_S)
        return self._weights.load(name)


def test_two_builders_at_once(model: LoadedModel, tmp_path: Path) -> None:
    """Both find no cache; both end with a whole one."""
    barrier = threading.Barrier(2)
    done: list[object] = []

    def build() -> None:
        source = Meeting(model, barrier)
        graph = open_packed(tmp_path, model.fingerprint, model.spec, source, 4, 1)
        done.append(graph.rows_path(1).exists())

    builders = [threading.Thread(target=build) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(TIMEOUT_S)
    assert done == [True, True]
    assert answer(model, tmp_path, weights=Unreadable()) == answer(model, tmp_path / "alone")
    assert {path.name for path in tmp_path.iterdir()} == {cache_key(model.fingerprint, 4), "alone"}
