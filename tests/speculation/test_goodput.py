"""GOODPUT's drafter: what it proposes, what it counts, when it waits outside the pipeline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.costs import CostBucket, StepCosts
from surefoot.speculation.goodput.chances import ServerPrior
from surefoot.speculation.goodput.drafter import GoodputDrafter
from surefoot.speculation.goodput.ledger import LOSS_RATE
from surefoot.speculation.prices import StepPrices
from surefoot.speculation.replay.simulation import TickKind, replay_trace
from surefoot.speculation.replay.traces import Trace

CONFIG = PromptLookupConfig(policy=DraftPolicy.GOODPUT)
#: A tenth of a step a draft, and a way back of a tenth.
CHEAP = StepPrices(0.1, (0.0, *(1.1 + 0.1 * w for w in range(8))))
DEAR = StepPrices(0.1, (0.0, *(1.1 + 2.0 * w for w in range(8))))
SOURCE = tuple(range(100, 140))


def copying(
    config: PromptLookupConfig = CONFIG, end_ids: frozenset[int] = frozenset()
) -> GoodputDrafter:
    """A row whose reply has copied 12 tokens of its prompt in plain steps."""
    drafter = GoodputDrafter(config, end_ids)
    drafter.start(SOURCE, SOURCE[0])
    for token in SOURCE[1:12]:
        drafter.situate(CHEAP, in_flight=True)
        drafter.retract_draft(drafter.draft_block(50))
        drafter.observe_emitted((token,))
    return drafter


def trusting(config: PromptLookupConfig = CONFIG) -> GoodputDrafter:
    """The same after a round of 2 that landed whole: 15 tokens, 1.7 steps gained."""
    drafter = copying(config)
    drafter.situate(CHEAP, in_flight=False)
    draft = drafter.draft_block(50)
    drafter.accept_verified_tokens(draft, 2, SOURCE[12:15])
    assert drafter.ledger.balance == pytest.approx(3 - 1.3)
    return drafter


def test_a_copy_is_proposed_narrow_first_and_then_as_wide_as_it_may_be() -> None:
    """With nothing gained yet the ledger admits one narrow miss and no more."""
    drafter = copying()
    drafter.situate(CHEAP, in_flight=False)
    assert drafter.draft_block(50) == list(SOURCE[12:14])
    drafter.accept_verified_tokens(SOURCE[12:14], 2, SOURCE[12:15])
    assert drafter.draft_block(50) == list(SOURCE[15:22])
    drafter.retract_draft(SOURCE[15:22])
    assert drafter.draft_block(3) == list(SOURCE[15:18])


def test_wider_than_seven_where_it_pays() -> None:
    drafter = trusting(replace(CONFIG, max_draft=20))
    drafter.situate(StepPrices(0.0, (0.0, *(1.0 + 0.05 * w for w in range(21)))), in_flight=False)
    assert drafter.draft_block(50) == list(SOURCE[15:35])


def test_a_round_dearer_than_its_tokens_is_not_proposed() -> None:
    drafter = copying()
    drafter.situate(DEAR, in_flight=False)
    assert drafter.draft_block(50) == []
    assert drafter.last_ask_paused
    assert drafter.pipelines_plain_rounds()


def test_no_match_is_no_pause() -> None:
    drafter = GoodputDrafter(CONFIG)
    drafter.start((1, 2, 3), 4)
    drafter.situate(CHEAP, in_flight=False)
    assert drafter.draft_block(50) == []
    assert not drafter.last_ask_paused
    assert drafter.stats.paused_rounds == 0
    assert drafter.pipelines_plain_rounds()


def test_a_proposal_ends_with_an_end_token() -> None:
    drafter = copying(end_ids=frozenset({SOURCE[12]}))
    drafter.situate(CHEAP, in_flight=False)
    assert drafter.draft_block(50) == [SOURCE[12]]


def test_stats_and_their_retraction() -> None:
    drafter = copying()
    assert (drafter.stats.rounds, drafter.stats.proposed, drafter.stats.paused_rounds) == (0, 0, 0)
    drafter.situate(CHEAP, in_flight=False)
    draft = drafter.draft_block(50)
    drafter.accept_verified_tokens(draft, 1, (draft[0], 9))
    drafter.situate(DEAR, in_flight=False)
    assert drafter.draft_block(50) == []
    drafter.observe_emitted((9,))
    stats = drafter.stats
    assert (stats.rounds, stats.drafted_rounds, stats.proposed, stats.accepted) == (2, 1, 2, 1)
    assert drafter.num_pauses == 0
    assert drafter.summary_line(15).startswith("prompt lookup: rounds=2 drafted=1 ")


def test_a_row_waits_outside_the_pipeline_only_for_a_round_it_will_propose() -> None:
    drafter = copying()
    drafter.situate(CHEAP, in_flight=False)
    assert not drafter.pipelines_plain_rounds()
    assert drafter.draft_block(1) == [SOURCE[12]]
    drafter.accept_verified_tokens([SOURCE[12]], 1, SOURCE[12:14])
    assert drafter.pipelines_plain_rounds()


def test_the_ledger_follows_the_ticks() -> None:
    """In flight, then a switch, a round that misses, the way back, and in flight again."""
    drafter = copying()
    assert drafter.ledger.balance == 0.0
    drafter.situate(CHEAP, in_flight=False)
    draft = drafter.draft_block(50)
    drafter.accept_verified_tokens(draft, 0, (1,))
    assert drafter.ledger.balance == pytest.approx(1 - 1.3)
    assert drafter.draft_block(50) == []
    drafter.observe_emitted((2,))
    assert drafter.ledger.balance == pytest.approx(1 - 1.3 - 0.1)
    drafter.situate(CHEAP, in_flight=True)
    assert drafter.draft_block(50) == []
    drafter.observe_emitted((3,))
    assert drafter.ledger.balance == pytest.approx(1 - 1.3 - 0.1)
    assert drafter.ledger.num_tokens == 14


def test_start_forgets_the_row_and_keeps_what_the_server_knows() -> None:
    prior = ServerPrior()
    drafter = GoodputDrafter(CONFIG, prior=prior)
    drafter.start((1, 2, 3, 4, 1, 2), 3)
    drafter.observe_emitted((9,))
    taught = list(prior.weights)
    assert taught != ServerPrior().weights
    drafter.start((1, 2, 3), 4)
    assert prior.weights == taught
    assert drafter.ledger.num_tokens == 0


def test_a_copy_costs_what_its_rounds_do() -> None:
    """A prompt that repeats itself, repeated: every draft lands, the last token is plain."""
    costs = StepCosts("cheap", "test", (CostBucket(None, 1.0, 1.1, {1: 1.1, 8: 1.8}),))
    trace = Trace((*SOURCE, *SOURCE, SOURCE[0], SOURCE[1]), SOURCE[2:])
    replay = replay_trace(trace, CONFIG, costs)
    assert [(done.proposed, done.accepted) for done in replay.rounds] == [(3, 3), *[(7, 7)] * 4]
    assert [tick.kind for tick in replay.ticks] == [
        *[TickKind.VERIFY] * 5,
        TickKind.SYNCHRONOUS,
    ]
    assert replay.cost == pytest.approx(1.4 + 4 * 1.8 + 1.1)


def test_a_text_without_matches_costs_what_plain_decoding_does() -> None:
    costs = StepCosts("dear", "test", (CostBucket(None, 1.0, 1.5, {2: 2.0}),))
    trace = Trace((1, 2, 3), tuple(range(10, 90)))
    replay = replay_trace(trace, CONFIG, costs)
    assert replay.cost == replay.plain_cost
    assert replay.stats.rounds == 77


def test_fixed_drafts_need_no_prices() -> None:
    assert not replace(CONFIG, adaptive=False).prices_rounds
    assert not PromptLookupConfig().prices_rounds
    assert CONFIG.prices_rounds
    assert LOSS_RATE == 0.005
