"""`surefoot calibrate`: what steps cost on this machine, and the tables the server prices by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.app.generate_lookup import GOODPUT_DRAFT_MAX
from surefoot.app.options import RunOptions
from surefoot.cli.flags import model as flags
from surefoot.cli.flags.lookup import WidestDraft
from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.costs import CostBucket, StepCosts, load_costs, save_costs

if TYPE_CHECKING:
    from surefoot.app.cost_tables import CostTables

CONTEXTS = (256, 1024, 4096)
BAR_PER_STEP = 8
"""Characters of the chart that one plain step is long."""


def calibrate(
    model: flags.Model = "default",
    context: flags.Context = None,
    threads: flags.Threads = None,
    deterministic: flags.Deterministic = False,
    draft_max: WidestDraft = GOODPUT_DRAFT_MAX,
    rounds: Annotated[int, typer.Option(help="Measurements of each figure.", min=1)] = 9,
    save_to: Annotated[
        Path | None, typer.Option("--json", help="Write the greedy table to this file too.")
    ] = None,
    show: Annotated[
        Path | None, typer.Option("--load", help="Show the table in this file; measure nothing.")
    ] = None,
) -> None:
    """Measure plain and verify steps at several context lengths, and keep the tables."""
    if show is not None:
        print(describe(load_costs(show)), end="")
        return
    PromptLookupConfig(max_draft=draft_max)
    options = RunOptions(model, context, threads, deterministic)
    tables = _measure(options, draft_max, rounds)
    print(describe(tables.greedy), end="\n")
    print(describe(tables.sampled), end="")
    if save_to is not None:
        save_costs(tables.greedy, save_to)


def _measure(options: RunOptions, draft_max: int, rounds: int) -> CostTables:
    from surefoot.app.cost_tables import measure_tables
    from surefoot.app.environment import model_store
    from surefoot.app.stack import load_model, open_engine

    store = model_store()
    loaded = load_model(options, store)
    engine = open_engine(loaded, store, options, num_windows=1)
    try:
        return measure_tables(store.costs, engine, loaded, draft_max, CONTEXTS, rounds)
    finally:
        engine.close()


def describe(costs: StepCosts) -> str:
    """A table in milliseconds and plain steps, with a bar for each width."""
    blocks = [f"{costs.name} ({costs.source})\n"]
    blocks += [_describe_bucket(bucket) for bucket in costs.buckets]
    return "\n".join(blocks)


def _describe_bucket(bucket: CostBucket) -> str:
    where = "any context" if bucket.context is None else f"{bucket.context:,} tokens of context"
    kinds = [("pipelined plain", bucket.pipelined_s), ("synchronous plain", bucket.synchronous_s)]
    kinds += [(f"verify, width {width}", bucket.verify_s[width]) for width in bucket.verify_s]
    lines = [where]
    for kind, seconds in kinds:
        steps = seconds / bucket.pipelined_s
        bar = "#" * max(1, round(BAR_PER_STEP * steps))
        lines.append(f"  {kind:<18} {1000 * seconds:8.2f} ms {steps:6.2f} steps  {bar}")
    return "\n".join(lines) + "\n"
