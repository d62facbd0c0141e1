"""The cost tables of a model on this machine: measured once, stored, read back, doubted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.tiny_models import text_model
from surefoot.app.cost_tables import CostTables, Extent, cost_tables, measure_tables, table_paths
from surefoot.app.options import RunOptions
from surefoot.app.server_lookup import ServerLookup, lookup_options
from surefoot.app.stack import load_model, open_engine
from surefoot.cli.program import run
from surefoot.engine.engine import Engine
from surefoot.errors import ConfigError
from surefoot.loading.model import LoadedModel
from surefoot.loading.store.models import ModelStore
from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.costs import CostBucket, StepCosts, load_costs, save_costs

STATED = StepCosts("stated", "a test", (CostBucket(256, 1.0, 1.5, {1: 1.5, 2: 2.0, 8: 4.0}),))
"""A table nobody could have measured here."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def gguf(home: Path) -> Path:
    return text_model().write(home / "tiny.gguf")


@dataclass(frozen=True, slots=True)
class Machine:
    """An idle engine with a window of 512 tokens, and an empty folder for tables."""

    engine: Engine
    model: LoadedModel
    root: Path

    def tables(self, max_draft: int = 7) -> CostTables:
        return cost_tables(self.root, self.engine, self.model, max_draft)

    def store(self, greedy: StepCosts, sampled: StepCosts) -> None:
        self.root.mkdir()
        for table, path in zip((greedy, sampled), self.paths, strict=True):
            save_costs(table, path)

    @property
    def paths(self) -> tuple[Path, Path]:
        return table_paths(self.root, self.engine, self.model)


@pytest.fixture(scope="module")
def opened(home: Path, gguf: Path) -> Iterator[tuple[Engine, LoadedModel]]:
    options = RunOptions(str(gguf), context=512, threads=1)
    store = ModelStore(home)
    model = load_model(options, store)
    engine = open_engine(model, store, options, num_windows=1)
    yield engine, model
    engine.close()


@pytest.fixture
def machine(opened: tuple[Engine, LoadedModel], tmp_path: Path) -> Machine:
    return Machine(*opened, tmp_path / "costs")


@pytest.mark.parametrize(
    ("capacity", "max_draft", "wanted", "extent"),
    [
        (8192, 7, (256, 1024, 4096), Extent(8, (256, 1024, 4096))),
        (4096, 7, (256, 1024, 4096), Extent(8, (256, 1024))),
        (1024, 64, (256, 1024), Extent(65, (256,))),
        (276, 7, (256, 1024), Extent(8, (256,))),
        (275, 7, (256, 1024), Extent(8, (68,))),
        (100, 64, (256,), Extent(35, (25,))),
        (16, 7, (256,), Extent(4, (4,))),
    ],
)
def test_a_table_reaches_as_far_as_the_window(
    capacity: int, max_draft: int, wanted: tuple[int, ...], extent: Extent
) -> None:
    assert Extent.of(capacity, max_draft, wanted) == extent


def test_a_window_too_small_to_measure_in_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--ctx is 15; prompt lookup needs at least 16"):
        Extent.of(15, 7, (256,))


def test_a_table_is_measured_once_and_read_ever_after(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = machine.tables()
    assert measured.origin.startswith("measured here")
    for table, widths in ((measured.greedy, [*range(1, 9)]), (measured.sampled, [1, 2, 4, 8])):
        assert [bucket.context for bucket in table.buckets] == [256]
        assert [sorted(bucket.verify_s) for bucket in table.buckets] == [widths]
    assert machine.tables() == CostTables(measured.greedy, measured.sampled, "stored table")
    assert capsys.readouterr().err == ""


def test_a_stored_table_is_believed(machine: Machine) -> None:
    machine.store(STATED, STATED)
    assert machine.tables() == CostTables(STATED, STATED, "stored table")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"name": "x", "buckets": []}', STATED.to_json().replace("2.0", "NaN")]
)
@pytest.mark.parametrize("broken", [0, 1])
def test_a_broken_table_is_measured_anew_with_a_warning(
    machine: Machine, capsys: pytest.CaptureFixture[str], broken: int, text: str
) -> None:
    machine.store(STATED, STATED)
    machine.paths[broken].write_text(text)
    measured = machine.tables(max_draft=1)
    assert measured.origin.startswith("measured here")
    warning = capsys.readouterr().err
    assert warning.startswith("warning: the stored cost table cannot be used (")
    assert machine.paths[broken].name in warning
    assert warning.endswith("); measuring anew\n")
    assert load_costs(machine.paths[0]) == measured.greedy
    assert load_costs(machine.paths[1]) == measured.sampled


def test_a_table_that_cannot_be_read_is_measured_anew_with_a_warning(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in machine.paths:
        path.mkdir(parents=True)
    measured = machine.tables(max_draft=1)
    assert measured.origin.startswith("measured here")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("warning: the stored cost table cannot be used (")
    assert lines[1].startswith("warning: the cost table could not be stored (")


def test_a_table_that_lacks_widths_is_measured_anew(machine: Machine) -> None:
    machine.store(STATED, STATED)
    measured = machine.tables(max_draft=8)
    assert measured.origin.startswith("measured here")
    assert max(measured.greedy.buckets[0].verify_s) == 9
    assert load_costs(machine.paths[0]) == measured.greedy


def test_a_table_without_narrow_rounds_is_measured_anew(machine: Machine) -> None:
    wide = StepCosts("wide", "a test", (CostBucket(256, 1.0, 1.5, {8: 4.0}),))
    machine.store(wide, wide)
    assert machine.tables().greedy.buckets[0].verify_s.keys() >= {1, 2, 8}


def test_a_table_of_a_smaller_window_is_measured_anew(machine: Machine) -> None:
    near = StepCosts("near", "a test", (CostBucket(64, 1.0, 1.5, {1: 1.5, 8: 4.0}),))
    machine.store(near, near)
    assert machine.tables().greedy.buckets[0].context == 256


def test_a_table_of_a_larger_window_serves_a_smaller_one(machine: Machine) -> None:
    far = StepCosts("far", "a test", (CostBucket(1024, 1.0, 1.5, {1: 1.5, 8: 4.0}),))
    machine.store(far, far)
    assert machine.tables().greedy == far


def test_a_window_with_little_room_gets_a_narrower_table(gguf: Path, home: Path) -> None:
    options = RunOptions(str(gguf), context=40, threads=1)
    store = ModelStore(home)
    model = load_model(options, store)
    engine = open_engine(model, store, options, num_windows=1)
    try:
        tables = measure_tables(home / "little", engine, model, max_draft=64)
        (bucket,) = tables.greedy.buckets
        assert (bucket.context, max(bucket.verify_s)) == (10, 13)
        assert cost_tables(home / "little", engine, model, 64).origin == "stored table"
    finally:
        engine.close()


def test_the_server_resolves_its_prices_from_the_stored_table(
    machine: Machine, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the whole of `make`, the warm-up of every width included."""
    store = ModelStore(machine.root.parent)
    machine.store(STATED, STATED)
    lookup = ServerLookup(lookup_options(PromptLookupConfig(), "auto", 2))
    lookup.make(store, machine.engine, machine.model)
    assert lookup.properties()["costs"] == "stored table"
    assert lookup.properties()["round_costs"] == {
        "256": [0.0, 1.5, 2.0, 2.333, 2.667, 3.0, 3.333, 3.667, 4.0]
    }
    assert capsys.readouterr().err == ""


def test_calibrate_prints_both_tables_and_saves_one(
    gguf: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUREFOOT_HOME", str(home))
    saved = home / "costs.json"
    arguments = ["calibrate", "-m", str(gguf), "--ctx", "512", "--threads", "1"]
    arguments += ["--draft-max", "3", "--rounds", "1", "--json", str(saved)]
    assert run(arguments) == 0
    captured = capsys.readouterr()
    table = load_costs(saved)
    assert table.name == "tiny.gguf greedy"
    assert table.source == "surefoot calibrate, 1 threads"
    assert [(b.context, sorted(b.verify_s)) for b in table.buckets] == [(256, [1, 2, 3, 4])]
    shown = captured.out.split("\n\n")
    titles = [part.splitlines()[0] for part in shown if "calibrate" in part]
    assert titles == [
        "tiny.gguf greedy (surefoot calibrate, 1 threads)",
        "tiny.gguf sampled (surefoot calibrate, 1 threads)",
    ]
    assert run(["calibrate", "--load", str(saved)]) == 0
    assert captured.out.startswith(capsys.readouterr().out)


def test_a_saved_table_has_the_form_of_the_recorded_ones(
    tmp_path: Path,
) -> None:
    recorded = Path(__file__).parents[1] / "data" / "costs" / "gb10-qwen3-1.7b-4bit.json"
    path = tmp_path / "copy.json"
    save_costs(load_costs(recorded), path)
    ours, theirs = json.loads(path.read_text()), json.loads(recorded.read_text())
    assert ours == {key: theirs[key] for key in ours}
    assert list(ours) == ["name", "source", "buckets"]
