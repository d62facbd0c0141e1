"""The hindsight optimum: small cases by hand, every schedule by brute force, every policy."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.speculation.acceptance import accepted_prefix
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.costs import CostBucket, StepCosts
from surefoot.speculation.lookup import find_draft
from surefoot.speculation.replay.hindsight import hindsight_optimum
from surefoot.speculation.replay.simulation import replay_trace
from surefoot.speculation.replay.traces import Trace

CONFIG = PromptLookupConfig()


def costs_of(*verify: float, synchronous: float = 1.25) -> StepCosts:
    """Plain steps by width from 1."""
    widths = dict(enumerate(verify, start=1))
    return StepCosts("test", "test", (CostBucket(None, 1.0, synchronous, widths),))


#: Width 8 is cheaper than width 7, as on a GB10 with 8B models.
COSTS = costs_of(1.25, 1.5, 2.0, 2.5, 3.0, 3.25, 3.75, 3.0)
PROMPT = (1, 2, 3, 4, 5, 6, 7, 8, 9, 20)


@pytest.mark.parametrize(
    ("emitted", "optimum"),
    [
        ((50,), 0.0),
        # No lookup: synchronous, then pipelined: plain decoding.
        ((50, 51), 1.25),
        ((50, 51, 52, 53), 1.25 + 2),
        # S, then `1 2` -> 3 to 9 and 20 at width 8.
        ((1, 2, 3, 4, 5, 6, 7, 8, 9, 20), 1.25 + 3.0),
        # Only 3 4 land: width 3 emits 3 4 99 for 2.0 (three pipelined steps cost 3).
        ((1, 2, 3, 4, 99), 1.25 + 2.0),
        # Only 3 lands: width 2 emits two for 1.5.
        ((1, 2, 3, 99), 1.25 + 1.5),
        # Nothing lands: never proposed.
        ((1, 2, 99, 98), 1.25 + 2),
        # The pipeline is left after the step that reads 2, though its round begins at 2.
        ((50, 51, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20), 1.25 + 1 + 1 + 3.0),
    ],
)
def test_by_hand(emitted: tuple[int, ...], optimum: float) -> None:
    assert hindsight_optimum(Trace(PROMPT, emitted), CONFIG, COSTS) == pytest.approx(optimum)


def brute_force(trace: Trace, config: PromptLookupConfig, costs: StepCosts) -> float:
    """Every schedule, forwards, by the words of the rule."""
    total = len(trace.emitted)

    @cache
    def cheapest(emitted: int, in_flight: bool) -> float:
        if emitted >= total:
            return 0.0
        if in_flight:
            return 1.0 + min(cheapest(emitted + 1, True), cheapest(emitted + 1, False))
        options = [
            costs.relative_synchronous() + cheapest(emitted + 1, primed) for primed in (False, True)
        ]
        draft = find_draft(trace.prompt + trace.emitted[:emitted], config)
        for width in range(1, len(draft) + 1):
            if width <= total - emitted - 1:
                landed = accepted_prefix(draft[:width], trace.emitted[emitted:])
                options.append(costs.relative(width + 1) + cheapest(emitted + landed + 1, False))
        return min(options)

    return cheapest(1, False)


TOKENS = st.integers(0, 3)
TRACES = st.builds(
    Trace,
    prompt=st.lists(TOKENS, min_size=1, max_size=12).map(tuple),
    emitted=st.lists(TOKENS, min_size=1, max_size=40).map(tuple),
)
TABLES = st.builds(
    lambda verify, synchronous: costs_of(*verify, synchronous=synchronous),
    st.lists(st.floats(0.5, 6.0), min_size=1, max_size=9),
    st.floats(0.8, 2.0),
)


@given(trace=TRACES, costs=TABLES)
def test_it_equals_brute_force(trace: Trace, costs: StepCosts) -> None:
    assert hindsight_optimum(trace, CONFIG, costs) == pytest.approx(
        brute_force(trace, CONFIG, costs)
    )


@given(
    trace=TRACES,
    costs=TABLES,
    policy=st.sampled_from([DraftPolicy.GRADED, DraftPolicy.GATED]),
    adaptive=st.booleans(),
    stopped=st.integers(0, 5),
)
def test_no_policy_and_no_plain_decoding_is_cheaper(
    trace: Trace, costs: StepCosts, policy: DraftPolicy, adaptive: bool, stopped: int
) -> None:
    # GOODPUT looks up single tokens too, which the optimum over the configured n-grams does not.
    trace = Trace(trace.prompt, trace.emitted, max_tokens=len(trace.emitted) + stopped)
    replay = replay_trace(trace, PromptLookupConfig(policy=policy, adaptive=adaptive), costs)
    optimum = hindsight_optimum(trace, CONFIG, costs)
    assert optimum <= replay.cost + 1e-9
    assert optimum <= replay.plain_cost + 1e-9


def test_a_draft_is_cut_after_an_end_token() -> None:
    """3 is an end token: a narrow round is all there is, though width 8 costs less here."""
    costs = costs_of(1.25, 1.5, 3.0, 3.0, 3.0, 3.0, 3.0, 0.5)
    emitted = (1, 2, 3)
    loose = Trace(PROMPT, emitted, max_tokens=64)
    assert hindsight_optimum(loose, CONFIG, costs) == 1.25 + 0.5
    ended = Trace(PROMPT, emitted, max_tokens=64, end_ids=frozenset({3}))
    assert hindsight_optimum(ended, CONFIG, costs) == 1.25 + 1.0
