"""The server's cost tables as they follow live steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surefoot.app.cost_tables import CostTables
from surefoot.app.live_tables import STEPS_BETWEEN, LiveTables
from surefoot.app.server_lookup import ServerLookup, lookup_options
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.costs import CostBucket, StepCosts
from surefoot.speculation.live_costs import LiveStep, StepKind

BUCKET = CostBucket(256, 0.010, 0.0125, {1: 0.0125, 2: 0.015, 4: 0.020, 8: 0.030})
TABLES = CostTables(
    greedy=StepCosts("tiny greedy", "a test", (BUCKET,)),
    sampled=StepCosts("tiny sampled", "a test", (BUCKET,)),
    origin="stored table",
)
PLAIN = LiveStep(StepKind.PIPELINED, 1, 100, 0.010)
SLOW = LiveStep(StepKind.VERIFY, 8, 100, 0.060)
STEPS = [PLAIN, SLOW] * (STEPS_BETWEEN // 2)


def test_a_new_table_comes_after_so_many_steps_and_starts_from_the_stated_one() -> None:
    live = LiveTables(TABLES)
    answers = [live.observe(step, False) for step in STEPS * 2]
    assert [index for index, tables in enumerate(answers, 1) if tables] == [
        STEPS_BETWEEN,
        2 * STEPS_BETWEEN,
    ]
    refined = answers[-1]
    assert refined is not None
    assert refined.greedy.buckets[0].verify_s[8] == pytest.approx(0.060)
    assert refined.sampled == TABLES.sampled
    assert refined.origin == "stored table, refined by the steps since"


def test_a_draw_corrects_the_table_of_draws_alone() -> None:
    live = LiveTables(TABLES)
    tables = [live.observe(step, True) for step in STEPS][-1]
    assert tables is not None
    assert tables.greedy == TABLES.greedy
    assert tables.sampled.buckets[0].verify_s[8] == pytest.approx(0.060)


@pytest.mark.parametrize("policy", list(DraftPolicy))
def test_goodput_is_priced_by_live_steps_and_the_break_even_rule_is_not(
    policy: DraftPolicy,
) -> None:
    lookup = ServerLookup(lookup_options(PromptLookupConfig(policy=policy), "auto", 2))
    part = lookup.resolve(TABLES)
    told = part.on_step
    assert (told is not None) is (policy is DraftPolicy.GOODPUT)
    if told is None:
        return
    before = lookup.properties()["round_costs"]
    for step in STEPS:
        told(step, False)
    after = lookup.properties()["round_costs"]
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert after["256"][8] > before["256"][8]
    assert lookup.properties()["costs"] == "stored table, refined by the steps since"
    lookup.resolve(replace(TABLES, origin="measured here"))
    assert lookup.properties()["round_costs"] == before


def test_the_shortest_run_shown_is_the_one_in_force() -> None:
    for policy, shortest in ((DraftPolicy.GATED, 2), (DraftPolicy.GOODPUT, 1)):
        lookup = ServerLookup(lookup_options(PromptLookupConfig(policy=policy), "auto", 2))
        lookup.resolve(TABLES)
        assert lookup.properties()["ngram_min"] == shortest
        assert f"n-grams of {shortest} to 3" in lookup.summary()[0]
