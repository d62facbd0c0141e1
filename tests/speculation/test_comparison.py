"""The comparison table: totals over traces, and its form."""

from pathlib import Path

import pytest

from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.costs import load_costs
from surefoot.speculation.replay.comparison import (
    Policy,
    PolicyTotals,
    compare,
    format_table,
    standard_policies,
)
from surefoot.speculation.replay.hindsight import hindsight_optimum
from surefoot.speculation.replay.simulation import replay_trace
from surefoot.speculation.replay.traces import Trace

COSTS = load_costs(Path(__file__).parent.parent / "data" / "costs" / "gb10-qwen3-1.7b-4bit.json")
SOURCE = tuple(range(100, 160))
TRACES = [Trace(SOURCE, SOURCE[:40]), Trace(SOURCE, tuple(range(500, 540)))]


def test_standard_policies() -> None:
    policies = standard_policies(PromptLookupConfig(max_draft=5, ngram_max=4))
    assert [policy.name for policy in policies] == ["graded", "gated", "fixed 5"]
    assert [policy.config.policy for policy in policies[:2]] == [
        DraftPolicy.GRADED,
        DraftPolicy.GATED,
    ]
    assert [policy.config.adaptive for policy in policies] == [True, True, False]
    assert {policy.config.ngram_max for policy in policies} == {4}
    assert not any(policy.priced for policy in policies)


def test_totals_are_sums_over_traces() -> None:
    rows = compare(TRACES, COSTS, standard_policies())
    assert [row.name for row in rows] == [
        "plain",
        "graded",
        "gated",
        "fixed 7",
        "hindsight optimum",
    ]
    config = standard_policies()[1].config
    walks = [replay_trace(trace, config, COSTS) for trace in TRACES]
    gated = rows[2]
    assert gated.num_tokens == 78
    assert gated.cost == sum(walk.cost for walk in walks)
    assert gated.rounds == sum(len(walk.rounds) for walk in walks)
    assert gated.accepted == sum(walk.stats.accepted for walk in walks)
    assert gated.acceptance_rate == gated.accepted / gated.proposed
    assert rows[0].cost == rows[0].plain_cost == gated.plain_cost
    assert rows[0].speed == 1.0
    assert rows[-1].cost == sum(
        hindsight_optimum(trace, PromptLookupConfig(), COSTS) for trace in TRACES
    )
    assert rows[-1].cost < min(row.cost for row in rows[:-1])
    assert rows[-1].rounds is None
    assert format_table(rows).splitlines()[-1].endswith("% | - | - | - | - | - |")


def test_a_priced_policy_stops_what_does_not_pay() -> None:
    emitted = tuple(token for n in range(40) for token in (100, 101, 102, 1000 + n, 2000 + n))
    traces = [Trace(SOURCE, emitted)] * 2
    config = PromptLookupConfig(policy=DraftPolicy.GATED, plain_rounds_before_pipeline=9)
    free, priced = compare(
        traces, COSTS, [Policy("free", config), Policy("priced", config, priced=True)]
    )[1:3]
    assert free.pauses == 0
    assert priced.pauses > 0
    assert priced.rounds < free.rounds
    assert priced.speed > free.speed


def test_the_table_as_text() -> None:
    rows = [
        PolicyTotals("plain", 100, 100.0, 100.0),
        PolicyTotals("gated", 100, 80.0, 100.0, rounds=9, proposed=40, accepted=30, pauses=2),
    ]
    assert format_table(rows).splitlines() == [
        "| policy | cost per token | speed | rounds | proposed | accepted | acceptance | pauses |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        "| plain | 1.0000 | +0.0 % | 0 | 0 | 0 | 0.0 % | 0 |",
        "| gated | 0.8000 | +25.0 % | 9 | 40 | 30 | 75.0 % | 2 |",
    ]


@pytest.mark.parametrize("emitted", [(7,), (7, 8)])
def test_replies_too_short_to_speculate(emitted: tuple[int, ...]) -> None:
    rows = compare([Trace((1, 2), emitted)], COSTS, standard_policies())
    assert {row.cost for row in rows} == {COSTS.relative_synchronous() * (len(emitted) - 1)}
    assert rows[1].speed == 1.0
