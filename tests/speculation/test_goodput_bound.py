"""The bound: whatever the text and whatever steps cost, GOODPUT loses at most half a percent of
the tokens and one narrow miss."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.costs import CostBucket, StepCosts
from surefoot.speculation.goodput.chances import ServerPrior
from surefoot.speculation.goodput.ledger import LOSS_RATE, NARROW_DRAFT
from surefoot.speculation.prices import StepPrices
from surefoot.speculation.replay.simulation import Replay, replay_trace
from surefoot.speculation.replay.traces import Trace

WIDTHS = range(1, 34)


def bound(replay: Replay, costs: StepCosts, max_draft: int) -> float:
    """The most the walk may cost: the dearest narrow miss and way back of the table. A synchronous
    step that the table calls faster than a pipelined one counts as one."""
    prices = [StepPrices.of(bucket, max_draft) for bucket in costs.buckets]
    narrow = max(price.worst_loss(min(NARROW_DRAFT, max_draft)) for price in prices)
    return (
        max(replay.plain_cost, float(replay.num_tokens))
        + LOSS_RATE * replay.num_tokens
        + max(narrow, 0.0)
        + max(price.exit_cost for price in prices)
    )


@st.composite
def tables(draw: st.DrawFn) -> StepCosts:
    """Any machine: rounds dearer or cheaper than plain steps, in no order of width."""
    contexts = draw(st.sampled_from([(None,), (20,), (20, 60), (10, 40, 90)]))
    buckets = []
    for context in contexts:
        synchronous = draw(st.floats(0.8, 2.0))
        few = draw(st.lists(st.sampled_from(WIDTHS), min_size=1, max_size=6, unique=True))
        verify = {width: draw(st.floats(0.5, 12.0)) for width in few}
        buckets.append(CostBucket(context, 1.0, synchronous, verify))
    return StepCosts("any", "test", tuple(buckets))


def adversary(rng: random.Random, length: int) -> list[int]:
    """Copies that break off where the drafter has learned to trust them, loops, and noise."""
    tokens = [rng.randrange(6) for _ in range(8)]
    while len(tokens) < length:
        kind = rng.randrange(3)
        if kind == 0:
            start = rng.randrange(len(tokens))
            tokens += tokens[start : start + rng.randrange(1, 24)]
        elif kind == 1:
            tokens += [rng.randrange(40) for _ in range(rng.randrange(1, 6))]
        else:
            tokens += tokens[-rng.randrange(1, 4) :] * rng.randrange(1, 8)
    return tokens[:length]


@settings(max_examples=100, deadline=None)
@given(
    costs=tables(),
    seed=st.integers(0, 2**32),
    length=st.integers(2, 120),
    max_draft=st.sampled_from([1, 2, 7, 32]),
    spare=st.integers(0, 4),
)
def test_no_text_and_no_table_costs_more_than_the_bound(
    costs: StepCosts, seed: int, length: int, max_draft: int, spare: int
) -> None:
    """Also with what the server learned from texts that the row then belies."""
    rng = random.Random(seed)
    config = PromptLookupConfig(policy=DraftPolicy.GOODPUT, max_draft=max_draft)
    prior = ServerPrior()
    for _ in range(2):
        tokens = adversary(rng, length + 8)
        trace = Trace(tuple(tokens[:8]), tuple(tokens[8:]), max_tokens=length + spare)
        replay = replay_trace(trace, config, costs, prior=prior)
        assert replay.cost <= bound(replay, costs, max_draft) + 1e-9


class Treacherous:
    """A text made to lose: it goes along with every lookup until a round is proposed, and misses
    its first draft. Built token by token from the walks of its own beginnings."""

    def __init__(self, costs: StepCosts, config: PromptLookupConfig) -> None:
        self._costs = costs
        self._config = config

    def reply(self, prompt: tuple[int, ...], length: int) -> tuple[int, ...]:
        emitted = [prompt[0]]
        for fresh in range(1000, 1000 + length):
            loyal = self._loyal(prompt, emitted)
            trial = Trace(prompt, (*emitted, loyal), max_tokens=length + 1)
            rounds = replay_trace(trial, self._config, self._costs, prior=ServerPrior()).rounds
            proposed = any(done.position == len(emitted) for done in rounds)
            emitted.append(fresh if proposed else loyal)
        return tuple(emitted)

    @staticmethod
    def _loyal(prompt: tuple[int, ...], emitted: list[int]) -> int:
        context = [*prompt, *emitted]
        for end in range(len(context) - 1, 1, -1):
            if context[end - 2 : end] == context[-2:]:
                return context[end]
        return context[0]


def test_a_text_that_belies_every_round_costs_its_bound_and_no_more() -> None:
    verify = {width: 0.5 + 0.5 * width for width in WIDTHS}
    costs = StepCosts("stairs", "test", (CostBucket(None, 1.0, 1.25, verify),))
    config = PromptLookupConfig(policy=DraftPolicy.GOODPUT)
    prompt = tuple([1, 2, 3, 4, 5, 6, 7, 8] * 4)
    emitted = Treacherous(costs, config).reply(prompt, 80)
    trace = Trace(prompt, emitted, max_tokens=81)
    replay = replay_trace(trace, config, costs, prior=ServerPrior())
    assert replay.rounds
    assert all(done.accepted == 0 for done in replay.rounds)
    assert replay.plain_cost < replay.cost <= bound(replay, costs, 7)
