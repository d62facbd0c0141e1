"""DraftGovernor, rule by rule, as tables of integers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.governed.governor import DraftGovernor

GRADED = PromptLookupConfig(policy=DraftPolicy.GRADED)
GATED = PromptLookupConfig(policy=DraftPolicy.GATED)


def budgets_after(config: PromptLookupConfig, accepted: list[int]) -> list[int]:
    """The budget at the start and after each drafted round that kept `accepted[i]`."""
    governor = DraftGovernor(config)
    budgets = [governor.budget()]
    for count in accepted:
        governor.record(count, config.max_draft)
        budgets.append(governor.budget())
    return budgets


def paused_asks(governor: DraftGovernor) -> int:
    """Budgets of 0 until the next that is not."""
    asks = 0
    while governor.budget() == 0:
        asks += 1
    return asks


@pytest.mark.parametrize(
    ("max_draft", "accepted", "budgets"),
    [
        # ema 7 -> budget 16 cut to 7.
        (7, [], [7]),
        (7, [7, 7], [7, 7, 7]),
        # ema 3.5, 1.75: 2 * ema + 2 = 9 -> 7, 5.5 rounds half up -> 4 + 2 = 6.
        (7, [0, 0], [7, 7, 6]),
        # ema 4, 2.5, 1.75, 1.375, 1.1875: caps 10, 7, 6, 5, 4.
        (7, [1, 1, 1, 1, 1], [7, 7, 7, 6, 5, 4]),
        # ... and converges on 2 * 1 + 2.
        (7, [1] * 9, [7, 7, 7, 6, 5, 4, 4, 4, 4, 4]),
        # ema 64, 32, 16, 10.
        (64, [0, 0, 4], [64, 64, 34, 22]),
        (1, [1, 0, 1], [1, 1, 1, 1]),
        (2, [0, 0], [2, 2, 2]),
    ],
)
def test_graded_block_follows_the_average(
    max_draft: int, accepted: list[int], budgets: list[int]
) -> None:
    assert budgets_after(replace(GRADED, max_draft=max_draft), accepted) == budgets


def test_graded_rounds_half_up() -> None:
    governor = DraftGovernor(replace(GRADED, max_draft=64))
    for ema, budget in [(0.0, 2), (0.24, 2), (0.25, 3), (0.75, 4), (1.25, 5), (1.24, 4)]:
        governor.accepted_ema = ema
        assert governor.budget() == budget


def test_graded_pauses_at_the_third_miss_and_doubles() -> None:
    governor = DraftGovernor(GRADED)
    lengths = []
    for _ in range(6):
        for miss in range(3):
            assert governor.budget() > 0, miss
            governor.record(0, 7)
        lengths.append(paused_asks(governor))
    assert lengths == [4, 8, 16, 32, 32, 32]
    assert governor.num_pauses == 6


def test_graded_a_landing_resets_misses_and_pause_length() -> None:
    governor = DraftGovernor(GRADED)
    for accepted in [0, 0, 0]:
        governor.record(accepted, 7)
    assert paused_asks(governor) == 4
    for accepted in [0, 0, 1, 0, 0]:
        governor.record(accepted, 7)
        assert governor.budget() > 0
    governor.record(0, 7)
    assert paused_asks(governor) == 4


def test_graded_counts_misses_from_zero_after_a_pause() -> None:
    governor = DraftGovernor(GRADED)
    for accepted in [0, 0, 0]:
        governor.record(accepted, 7)
    assert paused_asks(governor) == 4
    governor.record(0, 7)
    assert governor.budget() == 3
    governor.record(0, 7)
    assert governor.budget() == 2


def test_graded_timed_pause_runs_no_probe() -> None:
    governor = DraftGovernor(GRADED)
    for accepted in [0, 0, 0]:
        governor.record(accepted, 7)
    assert governor.budget() == 0
    assert governor.probes_while_paused is False
    assert governor.may_probe is False
    governor.shadow_confirmed()
    assert [governor.budget() for _ in range(4)] == [0, 0, 0, 4]


@pytest.mark.parametrize(
    ("max_draft", "accepted", "budgets"),
    [
        (7, [], [2]),
        # One whole narrow round lifts the average to 1.5: the full block.
        (7, [2], [2, 7]),
        # One of two for ever: 1.0 for ever, narrow for ever, never paused.
        (7, [1] * 8, [2] * 9),
        # Two of seven for ever: the average stays at 2, wide for ever.
        (7, [2] * 8, [2] + [7] * 8),
        # Wide again and narrow again: 1.5, 4.25, 2.125, 1.0625.
        (7, [2, 7, 0, 0], [2, 7, 7, 7, 2]),
        # A miss on probation pauses at once.
        (7, [0], [2, 0]),
        (7, [1, 0], [2, 2, 0]),
        # Off probation it takes three in a row.
        (7, [2, 0, 0, 0], [2, 7, 2, 2, 0]),
        (7, [2, 0, 0, 1, 0, 0, 0], [2, 7, 2, 2, 2, 2, 2, 0]),
        # max_draft 1: the whole narrow block is 1.
        (1, [1, 0, 0, 0], [1, 1, 1, 1, 0]),
        (2, [2, 0, 0, 0], [2, 2, 2, 2, 0]),
    ],
)
def test_gated_blocks_probation_and_misses(
    max_draft: int, accepted: list[int], budgets: list[int]
) -> None:
    assert budgets_after(replace(GATED, max_draft=max_draft), accepted) == budgets


def test_gated_pause_has_no_length_and_a_confirmation_ends_it_on_probation() -> None:
    governor = DraftGovernor(GATED)
    for accepted in [7, 7, 0, 0, 0]:
        governor.record(accepted, 7)
    assert [governor.budget() for _ in range(100)] == [0] * 100
    assert governor.probes_while_paused
    assert governor.may_probe
    governor.shadow_confirmed()
    assert (governor.accepted_ema, governor.misses) == (1.0, 0)
    assert governor.budget() == 2
    governor.record(1, 2)
    assert governor.budget() == 2
    governor.record(0, 2)
    assert governor.budget() == 0
    assert governor.num_pauses == 2


def test_a_confirmation_while_drafting_changes_nothing() -> None:
    governor = DraftGovernor(GATED)
    governor.record(2, 2)
    governor.shadow_confirmed()
    assert (governor.accepted_ema, governor.probation) == (1.5, False)


@pytest.mark.parametrize("policy", list(DraftPolicy))
def test_adaptive_off_always_grants_the_full_block(policy: DraftPolicy) -> None:
    config = PromptLookupConfig(
        policy=policy, adaptive=False, min_tokens_per_round=7.5, start_paused=True
    )
    assert budgets_after(config, [0] * 20) == [7] * 21
    governor = DraftGovernor(config)
    for _ in range(20):
        governor.record(0, 7)
    assert (governor.misses, governor.num_pauses, governor.probes_while_paused) == (0, 0, False)


SCRIPTS = st.lists(st.one_of(st.none(), st.integers(0, 7), st.just(-1)), max_size=60)


def run(config: PromptLookupConfig, script: list[int | None]) -> list[object]:
    """Every observable after each call: None asks, -1 confirms a probe, else a round lands."""
    governor = DraftGovernor(config)
    trail: list[object] = []
    for call in script:
        if call is None:
            trail.append(governor.budget())
        elif call < 0:
            governor.shadow_confirmed()
        else:
            governor.record(call, 7)
        trail.append(
            (
                governor.accepted_ema,
                governor.misses,
                governor.pause_left,
                governor.next_pause,
                governor.drafting,
                governor.probation,
                governor.num_pauses,
            )
        )
    return trail


@given(script=SCRIPTS, policy=st.sampled_from(DraftPolicy))
def test_without_a_price_the_field_changes_nothing(
    script: list[int | None], policy: DraftPolicy
) -> None:
    without = PromptLookupConfig(policy=policy)
    named = PromptLookupConfig(policy=policy, min_tokens_per_round=None, round_costs=None)
    never_reached = PromptLookupConfig(policy=policy, round_costs=(0.0,) * 9)
    assert run(without, script) == run(named, script) == run(never_reached, script)


@given(script=SCRIPTS, policy=st.sampled_from(DraftPolicy))
def test_with_a_threshold_it_parts_only_at_a_break_even_pause(
    script: list[int | None], policy: DraftPolicy
) -> None:
    """Up to the first record that leaves the averages losing, both are equal call by call."""
    plain = DraftGovernor(PromptLookupConfig(policy=policy))
    ruled = DraftGovernor(PromptLookupConfig(policy=policy, min_tokens_per_round=3.0))
    for call in script:
        if call is None:
            assert plain.budget() == ruled.budget()
        elif call < 0:
            plain.shadow_confirmed()
            ruled.shadow_confirmed()
        else:
            plain.record(call, 7)
            ruled.record(call, 7)
        if ruled.break_even.loses:
            assert ruled.probes_while_paused
            break
        assert plain.accepted_ema == ruled.accepted_ema
        assert plain.drafting == ruled.drafting


@pytest.mark.parametrize(
    ("policy", "accepted", "proposed"),
    [(DraftPolicy.GATED, 1, 2), (DraftPolicy.GATED, 2, 7), (DraftPolicy.GRADED, 1, 4)],
)
def test_low_landings_never_pause_without_the_rule_and_do_with_it(
    policy: DraftPolicy, accepted: int, proposed: int
) -> None:
    threshold = accepted + 1.5
    for rule, pauses in [(None, 0), (threshold, 1)]:
        governor = DraftGovernor(PromptLookupConfig(policy=policy, min_tokens_per_round=rule))
        for _ in range(50):
            governor.budget()
            if governor.drafting:
                governor.record(accepted, proposed)
        assert governor.num_pauses == pauses


@pytest.mark.parametrize(
    ("threshold", "accepted", "paused_after"),
    [
        # One round never pauses by break-even; two at 2.0 are below 2.5.
        (2.5, [1, 1], [False, True]),
        # 8, 4.5, 3.25, 2.625, 2.3125.
        (2.5, [7, 0, 1, 1, 1], [False, False, False, False, True]),
        # Equal to the threshold is not below it.
        (2.0, [1, 1, 1], [False, False, False]),
        # The first round sets the average: 3, then 2.5 is not below 2.5, 2.25 is.
        (2.5, [2, 1, 1], [False, False, True]),
    ],
)
@pytest.mark.parametrize("policy", list(DraftPolicy))
def test_break_even_arithmetic(
    policy: DraftPolicy, threshold: float, accepted: list[int], paused_after: list[bool]
) -> None:
    governor = DraftGovernor(PromptLookupConfig(policy=policy, min_tokens_per_round=threshold))
    paused = []
    for count in accepted:
        governor.record(count, 7)
        paused.append(governor.probes_while_paused)
    assert paused == paused_after
    assert (governor.budget() == 0) is paused_after[-1]


def test_a_resume_clears_the_break_even_averages() -> None:
    governor = DraftGovernor(replace(GATED, min_tokens_per_round=2.5))
    governor.record(1, 2)
    governor.record(1, 2)
    assert governor.probes_while_paused
    governor.shadow_confirmed()
    assert (governor.break_even.num_rounds, governor.break_even.emitted_ema) == (0, 0.0)
    assert governor.accepted_ema == 1.0
    governor.record(1, 2)
    assert not governor.probes_while_paused
    governor.record(1, 2)
    assert governor.probes_while_paused
    assert governor.num_pauses == 2


COSTS = (0.0, 1.2, 1.4, 1.8, 2.4, 3.0, 3.5, 3.8, 3.9)


def test_round_costs_are_averaged_over_the_same_rounds_and_weights() -> None:
    governor = DraftGovernor(replace(GATED, round_costs=COSTS))
    governor.record(7, 7)
    assert (governor.break_even.emitted_ema, governor.break_even.cost_ema) == (8.0, 3.9)
    governor.record(1, 2)
    assert governor.break_even.emitted_ema == pytest.approx(5.0)
    assert governor.break_even.cost_ema == pytest.approx((3.9 + 1.8) / 2)
    governor.record(1, 3)
    assert governor.break_even.cost_ema == pytest.approx((2.85 + 2.4) / 2)


def test_the_same_landings_pay_when_narrow_and_not_when_wide() -> None:
    for proposed, pauses in [(2, 0), (7, 1)]:
        governor = DraftGovernor(replace(GATED, round_costs=COSTS))
        governor.record(1, proposed)
        governor.record(1, proposed)
        assert governor.num_pauses == pauses


def test_a_width_beyond_the_table_costs_what_its_widest_does() -> None:
    governor = DraftGovernor(GATED)
    governor.break_even.round_costs = (0.0, 1.0, 2.0)
    governor.record(1, 7)
    assert governor.break_even.cost_ema == 2.0


def test_costs_may_change_between_rounds() -> None:
    governor = DraftGovernor(replace(GATED, round_costs=COSTS))
    governor.record(1, 2)
    governor.break_even.round_costs = (2.5,) * 9
    governor.record(1, 2)
    assert governor.break_even.cost_ema == pytest.approx((1.8 + 2.5) / 2)
    assert governor.probes_while_paused


def test_a_threshold_by_hand_wins_over_costs_given_later() -> None:
    governor = DraftGovernor(replace(GATED, min_tokens_per_round=1.5))
    governor.break_even.round_costs = (8.0,) * 9
    governor.record(1, 2)
    governor.record(1, 2)
    assert not governor.probes_while_paused


def test_graded_break_even_pause_probes_and_the_timed_pause_goes_on() -> None:
    """8, 4.5, 2.75, 1.875 tokens a round: the third miss pauses by both rules at once."""
    governor = DraftGovernor(replace(GRADED, min_tokens_per_round=2.0))
    for accepted in [7, 0, 0]:
        governor.record(accepted, 7)
    assert not governor.probes_while_paused
    governor.record(0, 7)
    assert (governor.pause_left, governor.probes_while_paused, governor.num_pauses) == (4, True, 1)
    assert governor.budget() == 0
    governor.shadow_confirmed()
    assert governor.accepted_ema == 1.0
    assert not governor.probes_while_paused
    # Three asks of the timed pause are left, then 2 * 1 + 2.
    assert [governor.budget() for _ in range(4)] == [0, 0, 0, 4]


def test_graded_break_even_pause_without_misses() -> None:
    governor = DraftGovernor(replace(GRADED, min_tokens_per_round=2.5))
    governor.record(1, 7)
    governor.record(1, 7)
    assert [governor.budget() for _ in range(50)] == [0] * 50
    assert governor.pause_left == 0
    governor.shadow_confirmed()
    assert governor.budget() == 4


def test_resume_evidence_several_probes_in_a_row() -> None:
    config = replace(GATED, resume_confirm_tokens=4, resume_repeat_tokens=7, resume_confirmations=3)
    governor = DraftGovernor(config)
    governor.record(0, 2)
    wanted = [governor.confirm_tokens]
    governor.shadow_confirmed()
    wanted.append(governor.confirm_tokens)
    governor.shadow_confirmed()
    governor.shadow_refuted()
    wanted.append(governor.confirm_tokens)
    for _ in range(2):
        governor.shadow_confirmed()
        wanted.append(governor.confirm_tokens)
        assert governor.budget() == 0
    governor.shadow_confirmed()
    assert governor.budget() == 2
    assert wanted == [4, 7, 4, 7, 7]
    governor.record(0, 2)
    assert governor.confirm_tokens == 4


def test_a_pause_probes_only_after_its_minimum_span() -> None:
    governor = DraftGovernor(replace(GATED, min_paused_span=3))
    for _ in range(2):
        governor.record(0, 2)
        seen = []
        for _ in range(5):
            assert governor.budget() == 0
            seen.append((governor.probes_while_paused, governor.may_probe))
        assert seen == [(True, False)] * 3 + [(True, True)] * 2
        governor.shadow_confirmed()


@pytest.mark.parametrize("policy", [DraftPolicy.GRADED, DraftPolicy.GATED])
def test_start_paused_needs_a_confirmation_first(policy: DraftPolicy) -> None:
    governor = DraftGovernor(PromptLookupConfig(policy=policy, start_paused=True))
    assert governor.budget() == 0
    assert governor.may_probe
    governor.shadow_confirmed()
    assert governor.budget() == {DraftPolicy.GRADED: 4, DraftPolicy.GATED: 2}[policy]
    assert governor.num_pauses == 0
