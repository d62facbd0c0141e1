"""PromptLookupDrafter: the order of an ask, its counts, retract, probes and the plain streak."""

from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.governed.drafter import PromptLookupDrafter, PromptLookupStats

GRADED = PromptLookupConfig(policy=DraftPolicy.GRADED)
GATED = PromptLookupConfig(policy=DraftPolicy.GATED)
#: A prompt in which `1 2` is followed by 3 4 5 6 7 8 9.
PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9, 20]


def started(config: PromptLookupConfig, *tail: int) -> PromptLookupDrafter:
    drafter = PromptLookupDrafter(config)
    drafter.start(PROMPT, tail[0])
    drafter.observe_emitted(tail[1:])
    return drafter


def counts(drafter: PromptLookupDrafter) -> tuple[int, ...]:
    """(rounds, drafted, paused, proposed, accepted, confirmations)"""
    return astuple(drafter.stats)


def miss(drafter: PromptLookupDrafter, token: int) -> None:
    """One drafted round that lands nothing and emits `token`."""
    draft = drafter.draft_block(64)
    assert draft
    drafter.accept_verified_tokens(draft, 0, [token])


def test_a_proposal_is_counted() -> None:
    drafter = started(GRADED, 1, 2)
    assert drafter.draft_block(64) == [3, 4, 5, 6, 7, 8, 9]
    assert counts(drafter) == (1, 1, 0, 7, 0, 0)
    drafter.accept_verified_tokens([3, 4, 5, 6, 7, 8, 9], 2, [3, 4, 99])
    assert counts(drafter) == (1, 1, 0, 7, 2, 0)


@pytest.mark.parametrize(("budget", "draft"), [(64, [3, 4]), (2, [3, 4]), (1, [3])])
def test_the_smaller_of_governor_and_budget(budget: int, draft: list[int]) -> None:
    drafter = started(GATED, 1, 2)
    assert drafter.draft_block(budget) == draft
    assert drafter.stats.proposed == len(draft)


def test_no_match_is_a_plain_round() -> None:
    drafter = started(GRADED, 50)
    assert drafter.draft_block(64) == []
    assert counts(drafter) == (1, 0, 0, 0, 0, 0)


def test_no_budget_is_a_paused_round() -> None:
    drafter = started(GRADED, 1, 2)
    assert drafter.draft_block(0) == []
    assert counts(drafter) == (1, 0, 1, 0, 0, 0)


def test_a_proposal_is_cut_after_an_end_token() -> None:
    drafter = PromptLookupDrafter(GRADED, frozenset({5}))
    drafter.start(PROMPT, 1)
    drafter.observe_emitted([2])
    assert drafter.draft_block(64) == [3, 4, 5]
    assert drafter.stats.proposed == 3


def test_start_forgets_an_earlier_run_and_keeps_prices() -> None:
    drafter = started(GATED, 1, 2)
    drafter.round_costs = (9.0,) * 9
    miss(drafter, 60)
    drafter.start([7, 8, 7], 8)
    assert counts(drafter) == (0, 0, 0, 0, 0, 0)
    assert drafter.num_pauses == 0
    assert drafter.round_costs == (9.0,) * 9
    assert drafter.draft_block(64) == [7, 8]


def test_the_plain_streak_pipelines_after_three_asks() -> None:
    drafter = started(GRADED, 50)
    pipelines = []
    for token in range(51, 55):
        assert drafter.draft_block(64) == []
        pipelines.append(drafter.pipelines_plain_rounds())
        drafter.observe_emitted([token])
    assert pipelines == [False, False, True, True]
    drafter.observe_emitted([1, 2])
    draft = drafter.draft_block(64)
    assert draft == [3, 4, 5, 6, 7, 8, 9]
    assert not drafter.pipelines_plain_rounds()
    drafter.retract_draft(draft)
    assert not drafter.pipelines_plain_rounds()


@pytest.mark.parametrize(("wait", "asks"), [(0, 1), (1, 2), (2, 3), (5, 6)])
def test_the_wait_before_the_pipeline(wait: int, asks: int) -> None:
    drafter = started(replace(GRADED, plain_rounds_before_pipeline=wait), 50)
    taken = 0
    while not drafter.pipelines_plain_rounds():
        assert drafter.draft_block(64) == []
        drafter.observe_emitted([60 + taken])
        taken += 1
    assert taken == asks


def test_a_timed_pause_extends_the_streak_and_counts_down_by_asks() -> None:
    drafter = started(GRADED, 1, 2)
    miss(drafter, 1)
    for token in (2, 1):
        drafter.observe_emitted([token])
    drafter.observe_emitted([2])
    miss(drafter, 1)
    drafter.observe_emitted([2])
    miss(drafter, 1)
    drafter.observe_emitted([2])
    pipelines = []
    for _ in range(4):
        assert drafter.draft_block(64) == []
        pipelines.append(drafter.pipelines_plain_rounds())
    assert pipelines == [False, False, True, True]
    assert drafter.stats.paused_rounds == 4
    assert drafter.draft_block(64) != []


def test_a_gated_pause_pipelines_at_once_and_a_probe_ends_it() -> None:
    drafter = started(GATED, 1, 2)
    miss(drafter, 1)
    assert drafter.num_pauses == 1
    assert drafter.pipelines_plain_rounds()
    drafter.observe_emitted([2])
    # The latest `1 2` is followed by 1 2: the probe claims those.
    assert drafter.draft_block(64) == []
    drafter.observe_emitted([1])
    assert drafter.draft_block(64) == []
    assert drafter.stats.shadow_confirmations == 0
    drafter.observe_emitted([2])
    # Settled by the ask, which then proposes at once: narrow, on probation.
    assert drafter.draft_block(64) == [1, 2]
    assert drafter.stats.shadow_confirmations == 1
    assert not drafter.pipelines_plain_rounds()


def test_a_refuted_probe_makes_room_for_the_next() -> None:
    drafter = started(GATED, 1, 2)
    miss(drafter, 1)
    drafter.observe_emitted([2])
    assert drafter.draft_block(64) == []
    drafter.observe_emitted([3])
    assert drafter.draft_block(64) == []  # refuted: 1 was claimed; `2 3` -> 4 5 now
    drafter.observe_emitted([4])
    assert drafter.draft_block(64) == []
    drafter.observe_emitted([5])
    assert drafter.draft_block(64) == [6, 7]
    assert drafter.stats.shadow_confirmations == 1


def test_a_probe_needs_a_proposal_long_enough() -> None:
    drafter = PromptLookupDrafter(GATED)
    drafter.start([4, 4], 4)
    miss(drafter, 5)
    # `5 5`, then `5 5 5`: one token follows, which is too short for a probe of two.
    for token in (5, 5, 5, 5):
        drafter.observe_emitted([token])
        assert drafter.draft_block(64) == []
    assert drafter.stats.shadow_confirmations == 0
    assert drafter.stats.paused_rounds == 4


@pytest.mark.parametrize("period", [(4,), (4, 6), (4, 6, 8)])
def test_an_overlapping_probe_continues_the_period(period: tuple[int, ...]) -> None:
    drafter = PromptLookupDrafter(replace(GATED, resume_confirm_tokens=4, overlapping_probes=True))
    drafter.start([1, 2, 3], 1)
    drafter.observe_emitted([2])
    miss(drafter, 50)
    drafter.observe_emitted(period * 4)
    # The first ask starts the probe; the fifth finds four tokens come true.
    for index in range(4):
        assert drafter.draft_block(64) == [], index
        drafter.observe_emitted([period[index % len(period)]])
    assert drafter.draft_block(64) != []
    assert drafter.stats.shadow_confirmations == 1


def test_without_overlap_a_short_period_never_offers_a_longer_probe() -> None:
    drafter = PromptLookupDrafter(replace(GATED, resume_confirm_tokens=4))
    drafter.start([4, 6, 8] * 3 + [9, 1, 2, 3], 1)
    drafter.observe_emitted([2])
    miss(drafter, 50)
    drafter.observe_emitted([4, 6, 8] * 4)
    for token in [4, 6, 8] * 10:
        assert drafter.draft_block(64) == []
        drafter.observe_emitted([token])
    assert drafter.stats.shadow_confirmations == 0


def test_max_draft_one_can_still_resume() -> None:
    drafter = started(replace(GATED, max_draft=1), 1, 2)
    miss(drafter, 1)
    drafter.observe_emitted([2])
    assert drafter.draft_block(64) == []
    drafter.observe_emitted([1, 2])
    assert drafter.draft_block(64) == [1]


def test_a_two_token_confirmation_resumes_the_default_and_not_longer_evidence() -> None:
    for config, resumed in [
        (GATED, True),
        (replace(GATED, resume_confirm_tokens=4), False),
        (replace(GATED, resume_confirmations=2), False),
        (replace(GATED, min_paused_span=3), False),
    ]:
        drafter = started(config, 1, 2)
        miss(drafter, 3)
        drafter.observe_emitted([50, 1, 2])
        assert drafter.draft_block(64) == []
        drafter.observe_emitted([3])
        assert drafter.draft_block(64) == []
        drafter.observe_emitted([50])
        assert (drafter.draft_block(64) != []) is resumed


def test_break_even_pauses_through_the_drafter() -> None:
    drafter = started(replace(GATED, min_tokens_per_round=2.5), 1, 2)
    draft = drafter.draft_block(64)
    assert draft == [3, 4]
    drafter.accept_verified_tokens(draft, 1, [3, 1])
    drafter.observe_emitted([2])
    draft = drafter.draft_block(64)
    assert draft == [3, 1]
    drafter.accept_verified_tokens(draft, 1, [3, 70])
    assert drafter.pipelines_plain_rounds()
    assert drafter.draft_block(64) == []
    assert drafter.stats.paused_rounds == 1
    assert drafter.num_pauses == 1


def test_prices_set_from_outside_use_the_width_of_each_round() -> None:
    for cost_of_width_3, pauses in [(1.9, 0), (2.1, 1)]:
        drafter = started(GATED, 1, 2)
        drafter.round_costs = (0.0, 1.0, 1.5, cost_of_width_3, 9.0, 9.0, 9.0, 9.0, 9.0)
        for tail in (1, 70):
            draft = drafter.draft_block(64)
            assert len(draft) == 2
            drafter.accept_verified_tokens(draft, 1, [draft[0], tail])
            drafter.observe_emitted([2] if tail == 1 else [])
        assert drafter.num_pauses == pauses


def test_the_end_of_a_round_may_be_cut() -> None:
    """Kept counts: an end token inside the block left two drafts and no bonus."""
    drafter = started(GRADED, 1, 2)
    draft = drafter.draft_block(64)
    drafter.accept_verified_tokens(draft, 2, [3, 4])
    assert drafter.stats.accepted == 2
    with pytest.raises(AssertionError):
        drafter.accept_verified_tokens(draft, 3, [3, 4])


def test_summary_line() -> None:
    stats = PromptLookupStats(
        rounds=30, drafted_rounds=8, paused_rounds=5, proposed=40, accepted=25,
        shadow_confirmations=2,
    )  # fmt: skip
    assert stats.summary_line(61) == (
        "prompt lookup: rounds=30 drafted=8 paused=5 proposed=40 accepted=25 acceptance=0.625 "
        "tokens_per_forward=1.714 shadow_confirmations=2"
    )
    assert PromptLookupStats().summary_line(1) == (
        "prompt lookup: rounds=0 drafted=0 paused=0 proposed=0 accepted=0 acceptance=0.000 "
        "tokens_per_forward=0.000 shadow_confirmations=0"
    )


class DrafterUse(RuleBasedStateMachine):
    """Any order of asks, retracts, verify rounds and plain steps over a small vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.drafter = PromptLookupDrafter(
            replace(GATED, round_costs=(0.0, 1.0, 1.3, 1.7, 2.0, 2.3, 2.6, 2.9, 3.2))
        )
        self.drafter.start([0, 1, 2, 0, 1], 2)
        self.asked: list[int] | None = None
        self.before: tuple[int, ...] = ()

    @precondition(lambda self: self.asked is None)
    @rule(budget=st.integers(0, 9))
    def ask(self, budget: int) -> None:
        self.before = counts(self.drafter)
        self.asked = self.drafter.draft_block(budget)
        assert len(self.asked) <= budget

    @precondition(lambda self: self.asked is not None)
    @rule()
    def retract(self) -> None:
        self.drafter.retract_draft(self.asked or [])
        assert counts(self.drafter)[:5] == self.before[:5]
        assert counts(self.drafter)[5] >= self.before[5]
        self.asked = None

    @precondition(lambda self: self.asked is not None)
    @rule(accepted=st.integers(0, 9), token=st.integers(0, 2))
    def run_forward(self, accepted: int, token: int) -> None:
        draft = self.asked or []
        if draft:
            kept = min(accepted, len(draft))
            self.drafter.accept_verified_tokens(draft, kept, [*draft[:kept], token])
        else:
            self.drafter.observe_emitted([token])
        self.asked = None

    @precondition(lambda self: self.asked is None)
    @rule(token=st.integers(0, 2))
    def step_without_an_ask(self, token: int) -> None:
        self.drafter.observe_emitted([token])

    @invariant()
    def counts_are_consistent(self) -> None:
        rounds, drafted, paused, proposed, accepted, confirmations = counts(self.drafter)
        assert min(rounds, drafted, paused, proposed, accepted, confirmations) >= 0
        assert drafted + paused <= rounds
        assert drafted <= proposed
        assert accepted <= proposed


TestDrafterUse = DrafterUse.TestCase


@given(
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=80),
    policy=st.sampled_from(DraftPolicy),
)
def test_a_retracted_ask_leaves_counts_as_if_it_was_not_made(
    tokens: list[int], policy: DraftPolicy
) -> None:
    drafter = PromptLookupDrafter(PromptLookupConfig(policy=policy))
    drafter.start([0, 1, 2, 3, 0, 1], 2)
    for token in tokens:
        drafter.observe_emitted([token])
        drafter.retract_draft(drafter.draft_block(7))
    assert counts(drafter)[:5] == (0, 0, 0, 0, 0)
