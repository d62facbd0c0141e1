"""Steps of the real engine: wiring from step to step, windows, what rows ask for, the end."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from support.engine_runs import ASKING, GREEDY, SAMPLED, Steps, row
from support.tiny_models import open_engine
from surefoot.core.request import SamplingParams
from surefoot.core.step import FromStep, RowResult, StepPlan
from surefoot.engine.engine import MAX_JOINT_ROWS, Engine
from surefoot.engine.session import MAX_BINDINGS
from surefoot.errors import EngineError

PENALIZED = SamplingParams(
    temperature=0.8, seed=5, frequency_penalty=1.5, repetition_penalty=1.2, logprobs=3
)
PROMPT = [5, 90, 17, 200, 33]


def text(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def synchronous(
    engine: Engine, prompt: Sequence[int], count: int, params: SamplingParams, window: int = 0
) -> list[RowResult]:
    """`count` tokens after the prompt, each read before the next step is submitted."""
    steps, output, results = Steps(engine), list[int](), list[RowResult]()
    feed, start = list(prompt), 0
    for _ in range(count):
        plan = row(
            feed,
            start,
            window=window,
            sample_from=len(feed) - 1,
            params=params,
            prompt_ids=prompt,
            output_ids=output,
        )
        results.append(steps.one(plan))
        start += len(feed)
        feed = [results[-1].tokens[-1]]
        output += feed
    return results


def pipelined(
    engine: Engine, prompt: Sequence[int], count: int, params: SamplingParams
) -> list[RowResult]:
    """The same, all submitted before anything is read. Each plan knows one token less than the
    step before it will have sampled."""
    handles = [
        engine.submit(
            StepPlan(
                0,
                (row(prompt, sample_from=len(prompt) - 1, params=params, prompt_ids=prompt),),
            )
        )
    ]
    known: list[int] = []
    for step in range(1, count):
        plan = row(
            FromStep(step - 1),
            len(prompt) + step - 1,
            params=params,
            prompt_ids=prompt,
            output_ids=known,
        )
        handles.append(engine.submit(StepPlan(step, (plan,))))
        if params.has_penalties:
            known.append(handles[step - 1].result().rows[0].tokens[-1])
    return [handle.result().rows[0] for handle in handles]


@pytest.mark.parametrize(
    "params", [GREEDY, ASKING, SAMPLED, PENALIZED], ids=["greedy", "asking", "sampled", "penalized"]
)
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_pipelined_steps_equal_synchronous_ones(
    request: pytest.FixtureRequest, mode: str, params: SamplingParams
) -> None:
    """In both modes: the very same forwards, fed by the engine instead of the host."""
    engine: Engine = request.getfixturevalue(mode)
    wanted = synchronous(engine, PROMPT, 24, params)
    assert pipelined(engine, PROMPT, 24, params) == wanted
    assert len({result.tokens for result in wanted}) > 4


def test_a_fed_token_follows_its_row_and_not_its_place(exact: Engine) -> None:
    first = StepPlan(0, (row(PROMPT, window=0, row_id=11), row(text(9), window=1, row_id=22)))
    second = StepPlan(
        1,
        (
            row(FromStep(0), 9, window=1, row_id=22),
            row(FromStep(0), len(PROMPT), window=0, row_id=11),
        ),
    )
    (one, two), (late_two, late_one) = [
        handle.result().rows for handle in [exact.submit(first), exact.submit(second)]
    ]
    assert (late_two.row_id, late_one.row_id) == (22, 11)
    steps = Steps(exact)
    for prompt, early, late in ((PROMPT, one, late_one), (text(9), two, late_two)):
        alone = steps.answers([*prompt, early.tokens[-1]], [len(prompt), 1], window=5)
        assert late.tokens == (alone[-1][0],)
        assert late.logprobs == (alone[-1][1],)


@pytest.mark.parametrize(
    ("step_id", "row_id"), [(98, 0), (101, 0), (100, 7)], ids=["older", "unknown", "other row"]
)
def test_a_feed_that_refers_to_nothing_fails_its_row(
    exact: Engine, step_id: int, row_id: int
) -> None:
    exact.submit(StepPlan(100, (row(PROMPT),)))
    plan = StepPlan(
        101, (row(FromStep(step_id), len(PROMPT), row_id=row_id), row(PROMPT, window=1, row_id=99))
    )
    lost, fine = exact.submit(plan).result().rows
    assert lost == RowResult(row_id, (), error="the step it follows gave this row no token")
    assert fine.error is None
    assert len(fine.tokens) == len(PROMPT)


def test_a_feed_from_a_step_that_sampled_nothing_fails_its_row(exact: Engine) -> None:
    exact.submit(StepPlan(0, (row(PROMPT, sample_from=len(PROMPT)),)))
    (lost,) = exact.submit(StepPlan(1, (row(FromStep(0), len(PROMPT)),))).result().rows
    assert lost.error == "the step it follows gave this row no token"


def test_results_come_in_the_plans_order(exact: Engine) -> None:
    """Whatever the windows' order is."""
    texts = {window: text(3 + window, seed=window) for window in (7, 0, 4)}
    plan = StepPlan(
        5, tuple(row(ids, window=window, row_id=100 - window) for window, ids in texts.items())
    )
    result = exact.submit(plan).result()
    assert result.step_id == 5
    assert result.seconds > 0
    assert [each.row_id for each in result.rows] == [93, 100, 96]
    steps = Steps(exact)
    for (window, ids), each in zip(texts.items(), result.rows, strict=True):
        assert each.tokens == steps.one(row(ids, window=window)).tokens


def test_rows_ask_for_what_they_want(exact: Engine) -> None:
    """Nothing, the last token, all; with and without log probabilities, in one step."""
    ids = text(6)
    nothing, last, every = Steps(exact).run(
        row(ids, window=0, sample_from=6),
        row(ids, window=1, sample_from=5, params=GREEDY),
        row(ids, window=2, params=SamplingParams(temperature=0.0, logprobs=0)),
    )
    assert (nothing.tokens, nothing.logprobs) == ((), ())
    assert last.logprobs is None
    assert len(every.tokens) == 6
    assert last.tokens == every.tokens[5:]
    assert every.logprobs is not None
    assert [entry.top for entry in every.logprobs] == [()] * 6


def test_more_rows_than_one_forward_takes(exact: Engine) -> None:
    assert exact.num_windows == 10 > MAX_JOINT_ROWS
    texts = [text(2 + window % 3, seed=window) for window in range(10)]
    steps = Steps(exact)
    together = steps.run(*(row(ids, window=window) for window, ids in enumerate(texts)))
    alone = [steps.one(row(ids, window=window)) for window, ids in enumerate(texts)]
    assert together == tuple(alone)
    feeds = [row(FromStep(900), len(ids), window=window) for window, ids in enumerate(texts)]
    exact.submit(StepPlan(900, tuple(row(ids, window=w) for w, ids in enumerate(texts))))
    assert all(
        each.error is None for each in exact.submit(StepPlan(901, tuple(feeds))).result().rows
    )


def test_any_set_of_windows_answers_alike(exact: Engine) -> None:
    """More sets than a session keeps bindings for, the first ones once more at the end, asking
    for more tokens and for fewer."""
    pairs = list(itertools.combinations(range(8), 2))
    assert len(pairs) > MAX_BINDINGS
    steps, one, two = Steps(exact), text(9, seed=1), text(4, seed=2)
    wanted = [steps.one(row(ids)) for ids in (one, two)]
    for turn, (low, high) in enumerate([*pairs, *pairs[:3]]):
        skipped = turn % 3
        found = steps.run(row(one, window=low, sample_from=skipped), row(two, window=high))
        for result, full, first in zip(found, wanted, (skipped, 0), strict=True):
            assert result.tokens == full.tokens[first:]
            assert (result.logprobs, full.logprobs) != (None, None)
            assert result.logprobs == full.logprobs[first:]  # type: ignore[index]


@pytest.mark.parametrize("params", [ASKING, SAMPLED], ids=["greedy", "sampled"])
def test_a_window_used_again_is_like_a_fresh_one(exact: Engine, params: SamplingParams) -> None:
    steps = Steps(exact)
    wanted = steps.answers(text(40), [40], window=8, params=params)
    for released in (True, False):
        steps.answers(text(120, seed=9), [60], window=3)
        if released:
            exact.release_window(3)
        assert steps.answers(text(40), [7], window=3, params=params) == wanted


def test_greedy_tokens_are_those_of_the_logits(fast: Engine) -> None:
    """The graph's own ArgMax answers where nobody asks for logits."""
    steps, ids = Steps(fast), text(100)
    with_logits = steps.one(row(ids, params=ASKING))
    assert steps.one(row(ids, params=GREEDY)).tokens == with_logits.tokens
    assert with_logits.logprobs is not None
    assert with_logits.tokens == tuple(entry.top[0][0] for entry in with_logits.logprobs)


@pytest.fixture
def closing(tiny_path: Path, tiny_graphs: Path) -> Engine:
    return open_engine(tiny_path, tiny_graphs)


def test_closing_finishes_what_was_submitted(closing: Engine) -> None:
    handles = [closing.submit(StepPlan(step, (row(PROMPT),))) for step in range(5)]
    closing.close()
    assert all(handle.result().rows[0].error is None for handle in handles)
    with pytest.raises(EngineError, match="the engine is closed"):
        closing.submit(StepPlan(9, (row(PROMPT),)))


def test_windows_and_capacity_are_the_configs(closing: Engine) -> None:
    assert (closing.num_windows, closing.capacity) == (1, 512)
    closing.close()
