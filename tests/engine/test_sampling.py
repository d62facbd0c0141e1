"""One position's logits to one token: filters, penalties, log probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot.core.request import SamplingParams
from surefoot.core.step import RowSampling
from surefoot.engine.sampling import draw_token, token_logprobs

LADDER = np.log(np.array([0.4, 0.3, 0.15, 0.1, 0.05], dtype=np.float32))
"""Five tokens with these probabilities, most likely first."""

DRAWS = 600


def draw(
    logits: NDArray[np.float32],
    *,
    position: int = 1,
    prompt: tuple[int, ...] = (),
    output: tuple[int, ...] = (),
    learned: tuple[int, ...] = (),
    **params: object,
) -> int:
    sampling = RowSampling(SamplingParams(**params), prompt, output)  # type: ignore[arg-type]
    return draw_token(logits, sampling, learned, position)[0]


def drawn(logits: NDArray[np.float32], **params: object) -> set[int]:
    """Every token that some position draws."""
    return {draw(logits, position=position, **params) for position in range(DRAWS)}


def adjusted_best(logits: list[float], **params: object) -> int:
    return draw(np.array(logits, dtype=np.float32), temperature=0.0, **params)


def test_without_filters_every_token_is_drawn() -> None:
    assert drawn(LADDER) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("top_k", "kept"), [(0, 5), (1, 1), (2, 2), (4, 4), (5, 5), (6, 5), (10**9, 5)]
)
def test_top_k(top_k: int, kept: int) -> None:
    assert drawn(LADDER, top_k=top_k) == set(range(kept))


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [
        (1e-300, 1),
        (1e-6, 1),
        (0.39, 1),
        (0.41, 2),
        (0.69, 2),
        (0.71, 3),
        (0.84, 3),
        (0.86, 4),
        (0.94, 4),
        (0.96, 5),
        (1.0, 5),
    ],
)
def test_top_p_keeps_the_fewest_that_hold_so_much(top_p: float, kept: int) -> None:
    assert drawn(LADDER, top_p=top_p) == set(range(kept))


@pytest.mark.parametrize(
    ("min_p", "kept"),
    [(0.0, 5), (0.12, 5), (0.13, 4), (0.24, 4), (0.26, 3), (0.74, 2), (0.76, 1), (1.0, 1)],
)
def test_min_p_is_relative_to_the_best(min_p: float, kept: int) -> None:
    assert drawn(LADDER, min_p=min_p) == set(range(kept))


def test_top_p_is_of_what_top_k_left() -> None:
    """Of 0.4 and 0.3 the first holds 57 %."""
    assert drawn(LADDER, top_k=2, top_p=0.56) == {0}
    assert drawn(LADDER, top_k=2, top_p=0.58) == {0, 1}


def test_temperature_comes_before_the_filters() -> None:
    """At temperature 0.5 the odds are squared: 0.4 holds 56 %, 0.3 32 %."""
    assert drawn(LADDER, temperature=0.5, top_p=0.55) == {0}
    assert drawn(LADDER, temperature=0.5, top_p=0.57) == {0, 1}
    assert drawn(LADDER, temperature=2.0, top_p=0.57) == {0, 1, 2}


def test_equals_at_the_edge_of_a_filter_stay_by_lower_id() -> None:
    level = np.zeros(2000, dtype=np.float32)
    assert drawn(level, top_k=3) == {0, 1, 2}
    assert drawn(level, top_p=0.0015) == {0, 1, 2}
    assert drawn(level, top_k=2000, top_p=2.5 / 2000) == {0, 1, 2}


@pytest.mark.parametrize("exponent", [1, 2, 4, 8, 12, 100, 300, 323])
def test_the_colder_the_nearer_to_greedy(exponent: int) -> None:
    temperature = float(f"1e-{exponent}")
    rng = np.random.default_rng(exponent)
    logits = rng.normal(0, 5, 1000).astype(np.float32)
    logits[123] = logits.max() + 5
    assert {draw(logits, temperature=temperature, position=p) for p in range(20)} == {123}


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0, "top_p": 0.1},
        {"temperature": 0.0, "top_k": 50},
        {"temperature": 0.0, "min_p": 0.5},
        {"temperature": 1.5, "top_k": 1},
    ],
)
def test_greedy_ignores_the_filters(params: dict[str, float]) -> None:
    logits = np.array([1.0, 3.0, 3.0, 2.0], dtype=np.float32)
    assert drawn(logits, **params) == {1}


@pytest.mark.parametrize(
    ("output", "best"),
    [((), 0), ((0,), 1), ((0, 1), 2), ((0, 0, 0), 1), ((2,), 0)],
)
def test_presence_is_once_for_each_emitted_token(output: tuple[int, ...], best: int) -> None:
    assert adjusted_best([2.0, 1.5, 1.2], presence_penalty=1.0, output=output) == best


@pytest.mark.parametrize(
    ("output", "best"), [((0,), 0), ((0, 0), 0), ((0, 0, 0), 1), ((0, 0, 0, 1), 0)]
)
def test_frequency_is_once_for_each_time(output: tuple[int, ...], best: int) -> None:
    assert adjusted_best([2.0, 1.5, 0.0], frequency_penalty=0.2, output=output) == best


def test_presence_and_frequency_leave_the_prompt_alone() -> None:
    penalties = {"presence_penalty": 2.0, "frequency_penalty": 2.0}
    assert adjusted_best([2.0, 1.5], prompt=(0, 0, 0), **penalties) == 0


def test_negative_penalties_favour() -> None:
    assert adjusted_best([2.0, 1.5], presence_penalty=-0.6, output=(1,)) == 1
    assert adjusted_best([2.0, 1.5], frequency_penalty=-0.2, output=(1, 1)) == 0
    assert adjusted_best([2.0, 1.5], frequency_penalty=-0.2, output=(1, 1, 1)) == 1


@pytest.mark.parametrize(
    ("logits", "best"),
    [
        ([2.0, 1.1], 1),
        ([2.0, 0.9], 0),
        ([-1.0, -1.9], 0),
        ([-1.0, -2.1], 0),
        ([-1.0, -1.5], 1),
    ],
)
def test_repetition_divides_what_is_above_zero_and_multiplies_below(
    logits: list[float], best: int
) -> None:
    penalty = 2.0 if logits[0] > 0 else 1.7
    for seen in ({"prompt": (0,)}, {"output": (0, 0)}, {"learned": (0,)}):
        assert adjusted_best(logits, repetition_penalty=penalty, **seen) == best


def test_repetition_is_once_for_a_token_in_prompt_and_output() -> None:
    assert adjusted_best([2.0, 0.9], repetition_penalty=2.0, prompt=(0,), output=(0, 0)) == 0


def test_penalties_count_what_was_learned_within_the_step() -> None:
    assert adjusted_best([2.0, 1.5], frequency_penalty=0.3, output=(0,), learned=(0,)) == 1


@pytest.mark.parametrize("penalty", [1e-6, 1e9])
def test_extreme_repetition_penalties_stay_finite(penalty: float) -> None:
    logits = np.array([5.0, -5.0, 1.0], dtype=np.float32)
    assert draw(logits, repetition_penalty=penalty, prompt=(0, 1, 2)) in (0, 1, 2)


def test_bias() -> None:
    assert adjusted_best([2.0, 1.0, 0.0], logit_bias=((0, -100.0),)) == 1
    assert adjusted_best([2.0, 1.0, 0.0], logit_bias=((2, 2.5),)) == 2
    assert drawn(LADDER, logit_bias=((0, -100.0), (2, -100.0))) == {1, 3, 4}
    assert drawn(LADDER, logit_bias=((3, 100.0),)) == {3}


def test_the_logits_are_left_as_they_are() -> None:
    """They are the engine's own array: another row of the step reads them next."""
    logits = LADDER.copy()
    draw(
        logits,
        logit_bias=((0, 5.0),),
        presence_penalty=1.0,
        repetition_penalty=1.5,
        output=(1,),
        top_p=0.9,
    )
    np.testing.assert_array_equal(logits, LADDER)


@pytest.mark.parametrize("num_top", [0, 1, 5, 20])
def test_log_probabilities_are_those_of_the_raw_logits(num_top: int) -> None:
    logits = np.random.default_rng(3).normal(0, 4, 500).astype(np.float32)
    wanted = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    sampling = RowSampling(
        SamplingParams(
            temperature=0.3, top_k=3, presence_penalty=1.5, logprobs=num_top, logit_bias=((7, 50),)
        ),
        output_ids=(7,),
    )
    token, entry = draw_token(logits, sampling, (), 5)
    assert token == 7
    assert entry is not None
    assert entry.logprob == pytest.approx(wanted[7], abs=1e-12)
    best = np.argsort(-wanted)[:num_top]
    assert [token_id for token_id, _ in entry.top] == best.tolist()
    assert [value for _, value in entry.top] == pytest.approx(wanted[best].tolist(), abs=1e-12)


def test_log_probabilities_of_large_logits_and_small_vocabularies() -> None:
    entry = token_logprobs(np.array([1e4, 1e4, -1e4], dtype=np.float32), 2, 20)
    assert entry.logprob == pytest.approx(-2e4 - math.log(2))
    assert [token for token, _ in entry.top] == [0, 1, 2]
    assert entry.top[0][1] == pytest.approx(-math.log(2))


def test_equal_alternatives_come_by_lower_id() -> None:
    entry = token_logprobs(np.zeros(3000, dtype=np.float32), 5, 4)
    assert [token for token, _ in entry.top] == [0, 1, 2, 3]


def test_no_log_probabilities_unless_asked() -> None:
    assert draw_token(LADDER, RowSampling(SamplingParams()), (), 1)[1] is None
