"""`surefoot replay`: recorded replies, walked again under other policies and other machines."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from surefoot.app.generate_lookup import DEFAULT_DRAFT_MAX, lookup_config
from surefoot.cli.flags.lookup import NgramMax, NgramMin, WidestDraft
from surefoot.errors import ConfigError
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.costs import load_costs
from surefoot.speculation.governed.server_defaults import server_lookup_config
from surefoot.speculation.replay.comparison import Policy, compare, format_table
from surefoot.speculation.replay.traces import read_traces


class ReplayPolicy(StrEnum):
    """`fixed`: every match proposes `--draft-max`. The `server-` ones add the break-even rule
    with the table's own prices; `goodput` prices by the table wherever it runs, and its rows learn
    from the traces before them."""

    GRADED = "graded"
    GATED = "gated"
    FIXED = "fixed"
    SERVER_GRADED = "server-graded"
    SERVER_GATED = "server-gated"
    GOODPUT = "goodput"


def replay(
    trace: Annotated[list[Path], typer.Option(help="Traces, JSONL (repeatable).")],
    costs: Annotated[list[Path], typer.Option(help="Cost tables, JSON (repeatable).")],
    policy: Annotated[
        list[ReplayPolicy] | None,
        typer.Option(help="Policies to compare (repeatable); all by default.", show_default=False),
    ] = None,
    draft_max: WidestDraft = DEFAULT_DRAFT_MAX,
    ngram_min: NgramMin = 2,
    ngram_max: NgramMax = 3,
) -> None:
    """Cost per token of each policy against plain decoding and the hindsight optimum."""
    traces = [one for path in trace for one in read_traces(path)]
    if not traces:
        raise ConfigError("the trace files hold no trace", param="trace")
    base = lookup_config(None, draft_max, ngram_min, ngram_max)
    policies = [policy_of(kind, base) for kind in policy or list(ReplayPolicy)]
    for path in costs:
        table = load_costs(path)
        many = f"{len(traces)} trace{'s' if len(traces) > 1 else ''}"
        print(f"{table.name}, {many}\n")
        print(format_table(compare(traces, table, policies)))


def policy_of(kind: ReplayPolicy, base: PromptLookupConfig) -> Policy:
    """The policy a name stands for."""
    if kind is ReplayPolicy.FIXED:
        return Policy(f"fixed {base.max_draft}", replace(base, adaptive=False))
    if kind is ReplayPolicy.GOODPUT:
        return Policy(str(kind), replace(base, policy=DraftPolicy.GOODPUT))
    graded = kind in (ReplayPolicy.GRADED, ReplayPolicy.SERVER_GRADED)
    ruled = replace(base, policy=DraftPolicy.GRADED if graded else DraftPolicy.GATED)
    if kind in (ReplayPolicy.GRADED, ReplayPolicy.GATED):
        return Policy(str(kind), ruled)
    return Policy(str(kind), server_lookup_config(ruled, None), priced=True)
