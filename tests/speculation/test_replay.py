"""Replay: walks worked by hand, the accounting, and properties that hold for any trace."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.costs import CostBucket, StepCosts, load_costs
from surefoot.speculation.overlap import OverlapMeter
from surefoot.speculation.replay.simulation import Replay, TickKind, plain_ticks, replay_trace
from surefoot.speculation.replay.traces import Trace

TABLES = Path(__file__).parent.parent / "data" / "costs"
GRADED = PromptLookupConfig(policy=DraftPolicy.GRADED)
GATED = PromptLookupConfig(policy=DraftPolicy.GATED)
#: Plain 1, synchronous 1.25, a round of width w costs (w + 2) / 2: sums are exact.
COSTS = StepCosts(
    "exact", "test", (CostBucket(None, 4.0, 5.0, {w: 2.0 * (w + 2) for w in range(1, 10)}),)
)
PROMPT = (1, 2, 3, 4, 5, 6, 7, 8, 9, 20)
LETTERS = {
    "V": TickKind.VERIFY,
    "S": TickKind.SYNCHRONOUS,
    "P": TickKind.PIPELINED,
    "X": TickKind.SWITCH,
}


def letters(replay: Replay) -> str:
    """V verify, S synchronous, P pipelined, X switch."""
    names = {kind: letter for letter, kind in LETTERS.items()}
    return "".join(names[tick.kind] for tick in replay.ticks)


def rounds(replay: Replay) -> list[tuple[int, int, int]]:
    return [(done.position, done.proposed, done.accepted) for done in replay.rounds]


@pytest.mark.parametrize(
    ("config", "emitted", "ticks", "verified"),
    [
        # Nothing ever matches: three synchronous ticks, then the pipeline.
        (GRADED, (50, 51, 52, 53, 54, 55, 56), "SSSPPP", []),
        (replace(GRADED, plain_rounds_before_pipeline=0), (50, 51, 52, 53, 54), "SPPP", []),
        # `1 2` -> 3 to 9 verified at once: 3 4 land, 99 corrects. Three plain rounds, the
        # pipeline; `1 2` again, seen while the step that samples 3 is in flight: it is read, and
        # the synchronous ask from `1 2 3` takes the latest occurrence: 4 lands, 5 corrects. `4 5`
        # then proposes 6, all that max_tokens leaves room for.
        (
            GRADED,
            (1, 2, 3, 4, 99, 50, 51, 52, 53, 54, 1, 2, 3, 4, 5, 60, 61),
            "SVSSSPPPPXVVS",
            [(2, 7, 2), (13, 3, 1), (15, 1, 0)],
        ),
        # The same under GATED: narrow first; one round landing whole earns the full block.
        (
            GATED,
            (1, 2, 3, 4, 99, 50, 51, 52, 53, 54, 1, 2, 3, 4, 5, 60, 61),
            "SVSSSPPPPXVVS",
            [(2, 2, 2), (13, 3, 1), (15, 1, 0)],
        ),
        # GATED pauses at its first miss and pipelines after the next tick: it is paused on
        # probes. From `2 3` the probe claims 4 5. The ask that sees both resumes and proposes,
        # with a step in flight: that step is read (6), and the row is asked again for 7 8.
        (
            GATED,
            (1, 2, 70, 71, 72, 2, 3, 4, 5, 6, 7, 8, 9, 20, 30, 31),
            "SVSPPPPPXVVS",
            [(2, 2, 0), (10, 2, 2), (13, 2, 1)],
        ),
        # Near the end: at most max_tokens - emitted - 1 are proposed. A row with no room is not
        # asked, and its plain tick primes.
        (GRADED, (1, 2, 3, 4, 5), "SV", [(2, 2, 2)]),
        (GRADED, (1, 2, 3, 4), "SV", [(2, 1, 1)]),
        (GRADED, (1, 2, 3), "SP", []),
        (GRADED, (1,), "", []),
        # No room for a proposal after the token in flight: not asked, so no switch tick.
        (GRADED, (50, 51, 52, 53, 54, 1, 2, 3, 4), "SSSPPPPP", []),
        # One token more, and there is room for one.
        (GRADED, (50, 51, 52, 53, 54, 1, 2, 3, 4, 5), "SSSPPPXV", [(8, 1, 1)]),
    ],
)
def test_walks_by_hand(
    config: PromptLookupConfig,
    emitted: tuple[int, ...],
    ticks: str,
    verified: list[tuple[int, int, int]],
) -> None:
    replay = replay_trace(Trace(PROMPT, emitted), config, COSTS)
    assert letters(replay) == ticks
    assert rounds(replay) == verified


def test_it_is_asked_less_than_it_could_be_when_the_limit_is_near() -> None:
    """The same tokens under a larger limit propose to the full."""
    emitted = (1, 2, 3, 4, 5)
    assert rounds(replay_trace(Trace(PROMPT, emitted, max_tokens=5), GRADED, COSTS)) == [(2, 2, 2)]
    roomy = replay_trace(Trace(PROMPT, emitted, max_tokens=99), GRADED, COSTS)
    # The reply ended after 5 (a stop string, say): three drafts kept and no bonus.
    assert rounds(roomy) == [(2, 7, 3)]
    assert roomy.stats.accepted == 3


def test_the_window_bounds_a_proposal() -> None:
    """At 2 emitted, 11 positions are filled: a width of k + 1 ends at 12 + k <= capacity."""
    emitted = (1, 2, 3, 4, 5, 6, 7)
    for capacity, proposed in [(13, 1), (14, 2), (16, 4), (99, 4)]:
        replay = replay_trace(Trace(PROMPT, emitted, capacity=capacity), GRADED, COSTS)
        assert replay.rounds[0].proposed == proposed
    assert letters(replay_trace(Trace(PROMPT, (1, 2, 3), capacity=12), GRADED, COSTS)) == "SP"


def test_an_end_token_in_a_draft_cuts_it_and_ends_the_row() -> None:
    trace = Trace(PROMPT, (1, 2, 3, 4, 5), max_tokens=64, end_ids=frozenset({5}))
    replay = replay_trace(trace, GRADED, COSTS)
    assert letters(replay) == "SV"
    assert rounds(replay) == [(2, 3, 3)]
    assert replay.stats.proposed == 3


def test_accounting() -> None:
    emitted = (1, 2, 3, 4, 99, 50, 51, 52, 53, 54, 1, 2, 3, 4, 5, 60, 61)
    replay = replay_trace(Trace(PROMPT, emitted), GRADED, COSTS)
    # S V8 S S S P P P P X V4 V2 S
    assert replay.cost == 5 * 1.25 + 5 * 1.0 + 5.0 + 3.0 + 2.0
    assert replay.num_tokens == 16
    assert replay.cost_per_token == 21.25 / 16
    assert replay.plain_cost == 1.25 + 15
    assert replay.change == pytest.approx(21.25 / 16.25 - 1)
    assert replay.tick_counts == {
        TickKind.VERIFY: 3,
        TickKind.SYNCHRONOUS: 5,
        TickKind.PIPELINED: 4,
        TickKind.SWITCH: 1,
    }
    assert (replay.stats.proposed, replay.stats.accepted) == (11, 3)
    assert replay.num_pauses == 0


def test_ticks_are_priced_at_their_own_context() -> None:
    costs = StepCosts(
        "two",
        "test",
        (CostBucket(8, 1.0, 2.0, {1: 2.0}), CostBucket(16, 1.0, 3.0, {1: 3.0})),
    )
    replay = replay_trace(Trace(PROMPT, (50, 51, 52, 53), max_tokens=9), GRADED, costs)
    assert [tick.context for tick in replay.ticks] == [11, 12, 13]
    # 12 is equally near to both: the shorter one.
    assert replay.cost == 2.0 + 2.0 + 3.0


def test_fixed_draft_never_pauses() -> None:
    """`1 2` recurs 30 times and nothing that followed it comes again."""
    emitted = tuple(token for n in range(30) for token in (1, 2, 100 + n))
    fixed = replay_trace(Trace(PROMPT, emitted), replace(GRADED, adaptive=False), COSTS)
    assert (fixed.num_pauses, len(fixed.rounds)) == (0, 29)
    assert {done.accepted for done in fixed.rounds} == {0}
    gated = replay_trace(Trace(PROMPT, emitted), GATED, COSTS)
    assert (gated.num_pauses, len(gated.rounds)) == (1, 1)


def test_no_price_no_change_and_a_price_that_stops_low_landings() -> None:
    """`1 2` lands its first draft of two each time, which GATED alone never stops."""
    emitted = tuple(token for n in range(40) for token in (1, 2, 3, 100 + n, 200 + n))
    trace = Trace(PROMPT, emitted)
    config = replace(GATED, plain_rounds_before_pipeline=9)
    free = replay_trace(trace, config, COSTS)
    assert {(done.proposed, done.accepted) for done in free.rounds[:-1]} == {(2, 1)}
    assert (len(free.rounds), free.num_pauses) == (40, 0)
    assert replay_trace(trace, replace(config, round_costs=(0.0,) * 9), COSTS) == free
    # Width 3 costs 2.5 and 0.25 for each synchronous tick; the rounds emit 2.
    priced = replay_trace(trace, config, COSTS, overlap=OverlapMeter(2))
    assert (len(priced.rounds), priced.num_pauses) == (2, 1)
    assert priced.cost < free.cost
    by_hand = replay_trace(trace, replace(config, min_tokens_per_round=2.5), COSTS)
    assert by_hand.ticks == priced.ticks


def test_one_meter_goes_through_many_traces() -> None:
    meter = OverlapMeter(2)
    trace = Trace(PROMPT, (1, 2, 3, 4, 5, 6, 7, 8, 9, 20))
    for _ in range(8):
        replay_trace(trace, GRADED, COSTS, overlap=meter)
    # Eight rounds without a synchronous tick after them, beside eight at 2.
    assert meter.ticks_per_round == 1.0


TOKENS = st.integers(0, 4)
TRACES = st.builds(
    Trace,
    prompt=st.lists(TOKENS, min_size=1, max_size=20).map(tuple),
    emitted=st.lists(TOKENS, min_size=1, max_size=60).map(tuple),
)
CONFIGS = st.builds(
    PromptLookupConfig,
    max_draft=st.integers(1, 8),
    adaptive=st.booleans(),
    policy=st.sampled_from(DraftPolicy),
    min_tokens_per_round=st.sampled_from([None, 1.5]),
    resume_confirm_tokens=st.integers(1, 4),
    resume_confirmations=st.integers(1, 2),
    min_paused_span=st.integers(0, 3),
    start_paused=st.booleans(),
    plain_rounds_before_pipeline=st.integers(0, 3),
)

FOLLOWERS = {
    # What a tick may be followed by.
    TickKind.VERIFY: {TickKind.VERIFY, TickKind.SYNCHRONOUS},
    TickKind.SYNCHRONOUS: set(TickKind),
    TickKind.PIPELINED: {TickKind.PIPELINED, TickKind.SWITCH},
    TickKind.SWITCH: {TickKind.VERIFY, TickKind.SYNCHRONOUS},
}


def emitted_by(replay: Replay) -> int:
    plain = sum(tick.kind is not TickKind.VERIFY for tick in replay.ticks)
    return plain + sum(done.accepted + 1 for done in replay.rounds)


@given(trace=TRACES, config=CONFIGS)
def test_every_walk_is_consistent(trace: Trace, config: PromptLookupConfig) -> None:
    replay = replay_trace(trace, config, COSTS)
    assert emitted_by(replay) == replay.num_tokens == len(trace.emitted) - 1
    if replay.ticks:
        assert replay.ticks[0].kind in (TickKind.VERIFY, TickKind.SYNCHRONOUS)
    for tick, following in zip(replay.ticks, replay.ticks[1:], strict=False):
        assert following.kind in FOLLOWERS[tick.kind]
    for done in replay.rounds:
        assert 0 <= done.accepted <= done.proposed <= config.max_draft
        assert done.proposed <= len(trace.emitted) - done.position - 1
    assert replay.stats.drafted_rounds == len(replay.rounds)
    assert replay.stats.proposed == sum(done.proposed for done in replay.rounds)
    assert replay.stats.accepted == sum(done.accepted for done in replay.rounds)
    assert replay == replay_trace(trace, config, COSTS)


@given(trace=TRACES, config=CONFIGS, more=st.integers(0, 9))
def test_a_reply_that_stopped_early_emits_no_more(
    trace: Trace, config: PromptLookupConfig, more: int
) -> None:
    stopped = replace(trace, max_tokens=len(trace.emitted) + more)
    replay = replay_trace(stopped, config, COSTS)
    assert emitted_by(replay) - replay.num_tokens in (0, 1)
    assert replay.stats.accepted <= replay.num_tokens


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.json")), ids=lambda path: path.stem)
def test_a_copied_reply_pays_and_a_fresh_one_costs_its_start(path: Path) -> None:
    costs = load_costs(path)
    source = tuple(range(100, 300))
    copy = Trace(source, source[:150])
    fresh = Trace(source, tuple(range(1000, 1150)))
    for config in (GRADED, GATED):
        assert replay_trace(copy, config, costs).change < -0.4
        # Two ticks more than plain decoding are synchronous.
        lost = replay_trace(fresh, config, costs)
        assert lost.cost - lost.plain_cost == pytest.approx(2 * (costs.relative_synchronous() - 1))


def test_plain_walk() -> None:
    assert [(tick.kind, tick.context) for tick in plain_ticks(Trace((1, 2), (3, 4, 5)))] == [
        (TickKind.SYNCHRONOUS, 3),
        (TickKind.PIPELINED, 4),
    ]
    assert plain_ticks(Trace((1,), (3,))) == []
    one_token: Sequence[float] = [
        replay_trace(Trace((1,), (3,)), GRADED, COSTS).cost_per_token,
        replay_trace(Trace((1,), (3,)), GRADED, COSTS).change,
    ]
    assert one_token == [0.0, 0.0]
