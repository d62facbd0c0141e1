"""OverlapMeter: which ticks count, and the weight of the start."""

from surefoot.speculation.overlap import PRIOR_ROUNDS, OverlapMeter


def test_it_starts_at_the_wait_it_is_given() -> None:
    assert OverlapMeter(2).ticks_per_round == 2.0
    assert OverlapMeter(0).ticks_per_round == 0.0


def test_only_ticks_between_a_round_and_the_next_prime_count() -> None:
    meter = OverlapMeter(2)
    for _ in range(3):
        meter.synchronous_tick()  # after prefill: no round caused them
    meter.primed()
    assert meter.ticks_per_round == 2.0
    meter.drafted_round()
    meter.synchronous_tick()
    meter.drafted_round()
    for _ in range(3):
        meter.synchronous_tick()
    meter.primed()
    meter.synchronous_tick()
    assert meter.ticks_per_round == (2 * PRIOR_ROUNDS + 4) / (PRIOR_ROUNDS + 2)


def test_it_follows_the_traffic() -> None:
    meter = OverlapMeter(2)
    for _ in range(792):
        meter.drafted_round()
    assert meter.ticks_per_round == 16 / 800
