"""The cost tables of this model on this machine: measured once, then read from the store.

Two tables, because a sampled position pays for its draw: greedy and sampled. The key names what
the times depend on; a file that cannot be read is measured anew, with a warning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.cli.console import say
from surefoot.errors import ConfigError
from surefoot.speculation.costs import StepCosts, load_costs, save_costs

if TYPE_CHECKING:
    from surefoot.engine.engine import Engine
    from surefoot.loading.model import LoadedModel

SAMPLED_WIDTHS = (2, 4, 8, 16, 32, 64)
"""A sampled table is measured at these widths only and read on the lines between them: its
draws cost the same at every position."""


@dataclass(frozen=True, slots=True)
class CostTables:
    """`origin` says where they came from, for the start-up summary."""

    greedy: StepCosts
    sampled: StepCosts
    origin: str

    def round_costs(self, max_draft: int) -> Callable[[int, float, bool], tuple[float, ...]]:
        """`scheduling.prompt_lookup.RoundCosts` over these tables."""

        def price(context: int, synchronous_ticks: float, sampled: bool) -> tuple[float, ...]:
            table = self.sampled if sampled else self.greedy
            return table.round_costs(context, max_draft, synchronous_ticks)

        return price


def cost_tables(root: Path, engine: Engine, model: LoadedModel, max_draft: int) -> CostTables:
    """The stored tables if they cover rounds of `max_draft`, else measured now and stored.
    `root` is the store's `costs` folder; the engine must be idle."""
    greedy_path, sampled_path = table_paths(root, engine, model)
    try:
        tables = CostTables(load_costs(greedy_path), load_costs(sampled_path), "stored table")
        if _covers(tables, max_draft):
            return tables
    except FileNotFoundError:
        pass
    except (ConfigError, OSError) as error:
        say(f"warning: the stored cost table cannot be used ({error}); measuring anew")
    return measure_tables(root, engine, model, max_draft)


def measure_tables(
    root: Path,
    engine: Engine,
    model: LoadedModel,
    max_draft: int,
    contexts: Sequence[int] | None = None,
    rounds: int | None = None,
) -> CostTables:
    """Measure both tables and store them. `contexts` and `rounds` None: as at start-up."""
    from surefoot.runtime import calibration

    chosen = tuple(contexts or calibration.START_UP_CONTEXTS)
    fitting = tuple(c for c in chosen if c < engine.capacity // 2) or (engine.capacity // 4,)
    widths = range(2, max_draft + 2)
    few = [width for width in SAMPLED_WIDTHS if width < max_draft + 1] + [max_draft + 1]
    began = time.monotonic()
    greedy, sampled = (
        calibration.measure_step_costs(
            engine,
            name=f"{model.name} {kind}",
            source=f"surefoot calibrate, {engine.config.num_threads} threads",
            contexts=fitting,
            widths=list(measured),
            sampling=params,
            clock=time.perf_counter,
            rounds=rounds or calibration.START_UP_ROUNDS,
        )
        for kind, measured, params in (
            ("greedy", widths, calibration.GREEDY),
            ("sampled", few, calibration.SAMPLED),
        )
    )
    tables = CostTables(greedy, sampled, f"measured in {time.monotonic() - began:.1f} s")
    _store(tables, table_paths(root, engine, model))
    return tables


def table_paths(root: Path, engine: Engine, model: LoadedModel) -> tuple[Path, Path]:
    """Where the greedy and the sampled table live: by model, machine, ONNX Runtime, threads and
    mode."""
    from surefoot.engine.packed_graph import cache_key

    config = engine.config
    mode = "-deterministic" if config.deterministic else ""
    key = cache_key(model.fingerprint, config.accuracy_level)
    stem = f"{key}-t{config.num_threads}{mode}"
    return root / f"{stem}-greedy.json", root / f"{stem}-sampled.json"


def _covers(tables: CostTables, max_draft: int) -> bool:
    return all(
        max(bucket.verify_s) >= max_draft + 1
        for table in (tables.greedy, tables.sampled)
        for bucket in table.buckets
    )


def _store(tables: CostTables, paths: tuple[Path, Path]) -> None:
    try:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        for table, path in zip((tables.greedy, tables.sampled), paths, strict=True):
            scratch = path.with_suffix(".new")
            save_costs(table, scratch)
            scratch.replace(path)
    except OSError as error:
        say(f"warning: the cost table could not be stored ({error.strerror})")
