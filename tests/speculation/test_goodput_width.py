"""Prices, chances, the ledger's purse, and the width chosen from them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.speculation.costs import CostBucket, StepCosts, load_costs
from surefoot.speculation.goodput.chances import (
    LEARNING_RATE,
    LEAST_CHANCE,
    PULL,
    SHIPPED_WEIGHTS,
    RowChances,
    ServerPrior,
)
from surefoot.speculation.goodput.ledger import LOSS_RATE, MAX_GAIN, Ledger
from surefoot.speculation.goodput.match import Sight
from surefoot.speculation.goodput.width import (
    NO_ROUND,
    WidthChoice,
    choose_leaving,
    choose_width,
)
from surefoot.speculation.prices import PriceBook, StepPrices

#: A round of w tokens costs (w + 2) / 2 plain steps, a way back a quarter.
PRICES = StepPrices(0.25, (0.0, *((w + 2) / 2 for w in range(1, 10))))
RICH = 100.0
TABLES = Path(__file__).parents[1] / "data" / "costs"


def test_prices_are_those_of_the_nearest_bucket() -> None:
    near = CostBucket(100, 2.0, 2.5, {1: 2.5, 3: 4.5})
    far = CostBucket(1000, 4.0, 3.0, {2: 8.0})
    book = PriceBook(StepCosts("two", "test", (near, far)), max_draft=3)
    assert book.at(549) == StepPrices(0.25, (0.0, 1.25, 1.75, 2.25, 2.25))
    assert book.at(551) == StepPrices(0.0, (0.0, 2.0, 2.0, 2.0, 2.0))
    assert book.at(0).max_draft == 3
    assert book.at(0).worst_loss(2) == 2.25 - 1.0 + 0.25


@pytest.mark.parametrize(
    ("landing", "expected"),
    [
        # Each draft adds half a step of cost: it is worth that while its chance is above 1/2.
        ([0.9, 0.9, 0.9, 0.4, 0.4], WidthChoice(3, 1 + 2.7 - 3.0)),
        ([1.0] * 8, WidthChoice(8, 9 - 5.5)),
        ([0.9], NO_ROUND),
        ([], NO_ROUND),
        ([0.4, 0.4, 0.4], NO_ROUND),
    ],
)
def test_a_full_purse_takes_the_best_expected_gain(
    landing: list[float], expected: WidthChoice
) -> None:
    choice = choose_width(landing, PRICES, RICH)
    assert choice.num_drafts == expected.num_drafts
    assert choice.gain == pytest.approx(expected.gain)


def test_what_cannot_be_afforded_is_not_taken() -> None:
    certain = [1.0] * 8
    for allowance in (0.0, 0.5, 0.74, 0.75, 1.25, 2.3, 4.75):
        choice = choose_width(certain, PRICES, allowance)
        widest = max((k for k in range(9) if k and PRICES.worst_loss(k) <= allowance), default=0)
        assert choice.num_drafts == (widest if widest > 2 else 0)


def test_a_small_purse_takes_the_likely_round_and_not_the_better_gamble() -> None:
    """Cheap narrow rounds, dear wide ones that gain more on average and lose all more often."""
    prices = StepPrices(0.0, (0.0, 1.0, 1.2, 2.5, 2.9))
    landing = [0.9, 0.8, 0.75]
    assert choose_width(landing, prices, RICH).num_drafts == 1
    better = [0.9, 0.87, 0.85]
    assert choose_width(better, prices, RICH).num_drafts == 3
    assert choose_width(better, prices, 1.9).num_drafts == 1


def test_leaving_the_pipeline_waits_for_the_token_in_flight_and_pays_the_way_back() -> None:
    """It lands with 0.8; then one more of 0.9 chance follows, with the round after it."""
    prices = StepPrices(0.25, (0.0, 1.0, 1.1))
    choice = choose_leaving([0.8, 0.72], prices, RICH)
    assert choice.num_drafts == 1
    assert choice.gain == pytest.approx((0.8 + 0.72) * (1.9 - 1.1) - 0.25)
    assert choose_leaving([0.1, 0.09], prices, RICH) == NO_ROUND
    assert choose_leaving([0.8], prices, RICH) == NO_ROUND
    assert choose_leaving([], prices, RICH) == NO_ROUND


@given(
    steps=st.lists(st.floats(0.05, 1.0), max_size=12),
    verify=st.lists(st.floats(0.3, 9.0), min_size=13, max_size=13),
    exit_cost=st.floats(0.0, 1.0),
    allowance=st.floats(0.0, 12.0),
)
def test_the_choice_is_the_best_growth_by_its_definition(
    steps: list[float], verify: list[float], exit_cost: float, allowance: float
) -> None:
    prices = StepPrices(exit_cost, (0.0, 1.0, *verify))
    landing = [math.prod(steps[: i + 1]) for i in range(len(steps))]
    purse = max(allowance, 1e-6)
    growths = {}
    for k in range(1, len(landing) + 1):
        if prices.worst_loss(k) > allowance + 1e-9 or sum(landing[:k]) + 1 <= prices.verify[k + 1]:
            continue
        reach = [1.0, *landing[:k], 0.0]
        growths[k] = sum(
            (reach[j] - reach[j + 1])
            * math.log(max(1 + (j + 1 - prices.verify[k + 1]) / purse, 1e-6))
            for j in range(k + 1)
        )
    choice = choose_width(landing, prices, allowance)
    best = max(growths.values(), default=0.0)
    if choice.num_drafts:
        assert growths[choice.num_drafts] == pytest.approx(best, abs=1e-9)
    else:
        assert best <= 1e-9


def test_the_ledger_of_a_reply() -> None:
    """In the pipeline, out of it, a round that misses, the way back; then a copy."""
    ledger = Ledger()
    narrow = PRICES.worst_loss(2)
    assert ledger.allowance(PRICES) == narrow + 0.25
    ledger.synchronous(PRICES)
    ledger.pipelined(9)
    assert ledger.balance == 0.0
    assert ledger.allowance(PRICES) == pytest.approx(narrow + 10 * LOSS_RATE)
    ledger.left_pipeline()
    ledger.pipelined(1)
    ledger.verified(PRICES, num_drafts=2, num_emitted=1)
    assert ledger.balance == 1 - 2.5
    ledger.synchronous(PRICES)
    ledger.synchronous(PRICES)
    assert ledger.balance == 1 - 2.5 - 0.25
    assert ledger.allowance(PRICES) == pytest.approx(14 * LOSS_RATE)
    for _ in range(3):
        ledger.verified(PRICES, num_drafts=7, num_emitted=8)
    assert ledger.balance == MAX_GAIN


def test_the_first_way_into_the_pipeline_is_plain_decodings_own() -> None:
    ledger = Ledger()
    ledger.verified(PRICES, num_drafts=1, num_emitted=2)
    ledger.synchronous(PRICES)
    assert ledger.balance == 0.0


def test_a_table_with_rounds_for_nothing_gives_no_allowance_below_the_balance() -> None:
    cheap = StepPrices(0.0, (0.0, 0.5, 0.5, 0.5))
    assert Ledger().allowance(cheap) == 0.0


SURE = Sight(run=20, num_rivals=2, num_agreeing=2, frequency=9)
DOUBTFUL = Sight(run=2, num_rivals=8, num_agreeing=1, frequency=1)


def test_chances_follow_the_shipped_weights() -> None:
    features = (1.0, math.log(2), 0.5, 1 / 8, math.log(8), math.log(2))
    logit = sum(w * x for w, x in zip(SHIPPED_WEIGHTS, features, strict=True))
    assert RowChances(ServerPrior()).landing([DOUBTFUL]) == pytest.approx(
        [1 / (1 + math.exp(-logit))]
    )


SIGHTS = st.builds(
    lambda run, rivals, agreeing, frequency: Sight(run, rivals, min(agreeing, rivals), frequency),
    st.integers(1, 40),
    st.integers(1, 8),
    st.integers(0, 8),
    st.integers(0, 5000),
)


@given(st.lists(SIGHTS, min_size=1, max_size=15), st.integers(0, 20), st.integers(0, 20))
def test_landing_is_the_models_chances_one_after_the_other(
    sights: list[Sight], landed: int, missed: int
) -> None:
    """Bit for bit: it is the same sum, written out."""
    prior = ServerPrior()
    chances = RowChances(prior)
    for hit in [True] * landed + [False] * missed:
        chances.record(DOUBTFUL, hit)
    together, wanted = 1.0, []
    for sight in sights:
        together *= prior.chance(chances._features(sight))
        if together < LEAST_CHANCE:
            break
        wanted.append(together)
    assert chances.landing(sights) == wanted


def test_a_long_agreed_run_is_almost_certain_and_a_disputed_one_is_not() -> None:
    row = RowChances(ServerPrior())
    sure = row.landing([SURE] * 3)
    assert sure[0] > 0.9
    assert sure == pytest.approx([sure[0], sure[0] ** 2, sure[0] ** 3])
    assert row.landing([DOUBTFUL])[0] < 0.2
    assert all(chance >= LEAST_CHANCE for chance in row.landing([DOUBTFUL] * 9))


def test_a_row_learns_from_its_own_misses() -> None:
    row, other = RowChances(ServerPrior()), RowChances(ServerPrior())
    for _ in range(20):
        row.record(SURE, False)
        other.record(SURE, True)
    assert row.landing([SURE])[0] < other.landing([SURE])[0]


def test_a_new_row_starts_from_what_the_server_saw() -> None:
    prior = ServerPrior()
    fresh = RowChances(prior).landing([SURE])[0]
    taught = RowChances(prior)
    for _ in range(300):
        taught.record(SURE, False)
    assert RowChances(prior).landing([SURE])[0] < fresh


def test_the_server_forgets() -> None:
    """A token that says nothing leaves the pull alone: back towards the shipped weights."""
    prior = ServerPrior()
    prior.weights = [weight + 1.0 for weight in SHIPPED_WEIGHTS]
    for _ in range(100):
        prior.learn((0.0,) * 6, True)
    kept = (1.0 - LEARNING_RATE * PULL) ** 100
    assert prior.weights == pytest.approx([weight + kept for weight in SHIPPED_WEIGHTS])


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.json")), ids=lambda path: path.stem)
def test_a_certain_copy_is_verified_wide_on_every_machine(path: Path) -> None:
    prices = PriceBook(load_costs(path), 7).at(256)
    assert choose_width([0.99**i for i in range(1, 8)], prices, RICH).num_drafts == 7
