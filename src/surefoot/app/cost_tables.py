"""The cost tables of this model on this machine: measured once, then read from the store.

Two tables, because a sampled position pays for its draw: greedy and sampled. The key names what
the times depend on; a file that cannot be read is measured anew, with a warning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.app.console import say
from surefoot.errors import ConfigError
from surefoot.speculation.costs import StepCosts, load_costs, save_costs
from surefoot.speculation.prices import PriceBooks

if TYPE_CHECKING:
    from surefoot.engine.engine import Engine
    from surefoot.loading.model import LoadedModel

MIN_CAPACITY = 16
"""Tokens of the smallest window that rounds can be measured in."""

GREEDY_WIDTHS = (*range(2, 9), 10, 12, 14, 16, *range(24, 65, 8))
SAMPLED_WIDTHS = (2, 4, 8, 16, 32, 64)
"""The widths that the tables are measured at, and the widest; they are read on the lines between
them. Narrow rounds are the ones that are close to not being worth it, and a sampled table's draws
cost the same at every position."""


@dataclass(frozen=True, slots=True)
class CostTables:
    """`origin` says where they came from, for the start-up summary; `quiet` whether the machine
    was, while they were measured."""

    greedy: StepCosts
    sampled: StepCosts
    origin: str
    quiet: bool = True

    def round_costs(self, max_draft: int) -> Callable[[int, float, bool], tuple[float, ...]]:
        """`scheduling.prompt_lookup.RoundCosts` over these tables."""

        def price(context: int, synchronous_ticks: float, sampled: bool) -> tuple[float, ...]:
            table = self.sampled if sampled else self.greedy
            return table.round_costs(context, max_draft, synchronous_ticks)

        return price

    def price_books(self, max_draft: int) -> PriceBooks:
        """What steps cost by these tables, for drafts of up to `max_draft` tokens."""
        return PriceBooks(max_draft, self.greedy, self.sampled)


def cost_tables(root: Path, engine: Engine, model: LoadedModel, max_draft: int) -> CostTables:
    """The stored tables, else measured now and stored. `root` is the store's `costs` folder; the
    engine must be idle."""
    stored = stored_tables(root, engine, model, max_draft)
    return measure_tables(root, engine, model, max_draft) if stored is None else stored


def stored_tables(
    root: Path, engine: Engine, model: LoadedModel, max_draft: int
) -> CostTables | None:
    """The stored tables if they cover rounds of `max_draft` at the contexts of this window."""
    from surefoot.app.calibration import DEFAULT_CONTEXTS

    greedy_path, sampled_path = table_paths(root, engine, model)
    try:
        tables = CostTables(load_costs(greedy_path), load_costs(sampled_path), "stored table")
    except FileNotFoundError:
        return None
    except (ConfigError, OSError) as error:
        say(f"warning: the stored cost table cannot be used ({error}); measuring anew")
        return None
    covered = _covers(tables, Extent.of(engine.capacity, max_draft, DEFAULT_CONTEXTS))
    return tables if covered else None


def measure_tables(
    root: Path,
    engine: Engine,
    model: LoadedModel,
    max_draft: int,
    contexts: Sequence[int] | None = None,
    rounds: int | None = None,
) -> CostTables:
    """`measuring`, at one go, and stored whatever else ran on the machine."""
    from surefoot.app.calibration import finish

    tables = finish(measuring(engine, model, max_draft, contexts, rounds))
    store_tables(tables, root, engine, model)
    return tables


def measuring(
    engine: Engine,
    model: LoadedModel,
    max_draft: int,
    contexts: Sequence[int] | None = None,
    rounds: int | None = None,
    window: int = 0,
) -> Generator[None, None, CostTables]:
    """Measure both tables in bursts, in a window that nobody uses meanwhile. `contexts` and
    `rounds` None: the defaults. Raises `ConfigError` for a window too small to measure in."""
    from surefoot.app import calibration

    extent = Extent.of(engine.capacity, max_draft, contexts or calibration.DEFAULT_CONTEXTS)
    measured = []
    for kind, widths, params in (
        ("greedy", GREEDY_WIDTHS, calibration.GREEDY),
        ("sampled", SAMPLED_WIDTHS, calibration.SAMPLED),
    ):
        plan = calibration.CalibrationPlan(
            name=f"{model.name} {kind}",
            source=f"surefoot calibrate, {engine.config.num_threads} threads",
            window=window,
            contexts=extent.contexts,
            widths=[width for width in widths if width < extent.widest] + [extent.widest],
            sampling=params,
            rounds=rounds or calibration.DEFAULT_ROUNDS,
        )
        measured.append((yield from calibration.calibrate(engine, plan, time.perf_counter)))
    greedy, sampled = measured
    return CostTables(
        greedy.costs, sampled.costs, "measured here", quiet=greedy.quiet and sampled.quiet
    )


@dataclass(frozen=True, slots=True)
class Extent:
    """What a table of one window has: widths from 2 to `widest`, and these contexts."""

    widest: int
    contexts: tuple[int, ...]

    @classmethod
    def of(cls, capacity: int, max_draft: int, wanted: Sequence[int]) -> Extent:
        """The widths of rounds up to `max_draft` and the contexts of `wanted`, as far as a window
        of `capacity` tokens holds them; a quarter of it is the context where none of them fits.
        Raises `ConfigError` where nothing fits."""
        from surefoot.app.calibration import fits

        if capacity < MIN_CAPACITY:
            raise ConfigError(
                f"--ctx is {capacity}; prompt lookup needs at least {MIN_CAPACITY}, "
                "--draft-kind none does without it",
                param="ctx",
            )
        quarter = capacity // 4
        widest = max_draft + 1
        while not fits(quarter, widest, capacity):
            widest -= 1
        fitting = tuple(context for context in wanted if fits(context, widest, capacity))
        return cls(widest, fitting or (quarter,))


def table_paths(root: Path, engine: Engine, model: LoadedModel) -> tuple[Path, Path]:
    """Where the greedy and the sampled table live: by model, machine, ONNX Runtime, threads and
    mode."""
    from surefoot.engine.packed_graph import cache_key

    config = engine.config
    mode = "-deterministic" if config.deterministic else ""
    key = cache_key(model.fingerprint, config.accuracy_level)
    stem = f"{key}-t{config.num_threads}{mode}"
    return root / f"{stem}-greedy.json", root / f"{stem}-sampled.json"


def _covers(tables: CostTables, extent: Extent) -> bool:
    """As wide, from the narrowest round on, and as far: shorter contexts than were measured cost
    what the shortest does."""
    return all(
        max(bucket.context or 0 for bucket in table.buckets) >= max(extent.contexts)
        and all(
            min(bucket.verify_s) <= 2 and max(bucket.verify_s) >= extent.widest
            for bucket in table.buckets
        )
        for table in (tables.greedy, tables.sampled)
    )


def store_tables(tables: CostTables, root: Path, engine: Engine, model: LoadedModel) -> None:
    """Keep them for the next start; a disk that refuses is a warning."""
    paths = table_paths(root, engine, model)
    try:
        root.mkdir(parents=True, exist_ok=True)
        for table, path in zip((tables.greedy, tables.sampled), paths, strict=True):
            scratch = path.with_suffix(".new")
            save_costs(table, scratch)
            scratch.replace(path)
    except OSError as error:
        say(f"warning: the cost table could not be stored ({error.strerror})")
