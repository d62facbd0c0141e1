"""The steps whose times are told on: a row's own, named as a cost table names them."""

from __future__ import annotations

from dataclasses import replace

from support.fakes import ScriptedEngine
from support.lookup_runs import GRADED, PLAIN, PROMPT, REPLIES
from support.lookup_texts import Diaries
from support.scheduler_runs import Run, request
from surefoot.core.request import SamplingParams
from surefoot.scheduling.proposing import PromptLookup
from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.live_costs import LiveStep, StepKind

SEEDED = SamplingParams(temperature=0.8, seed=3)
PIPELINED, SYNCHRONOUS, VERIFY = StepKind.PIPELINED, StepKind.SYNCHRONOUS, StepKind.VERIFY


class Timed(Run):
    """The clock stands at the number of steps submitted so far."""

    def __init__(self, config: PromptLookupConfig = GRADED) -> None:
        self.steps: list[tuple[LiveStep, bool]] = []
        lookup = PromptLookup(Diaries(config), on_step=lambda *told: self.steps.append(told))
        engine = ScriptedEngine(2, 4096, vocab=50, replies=REPLIES)
        super().__init__(engine, None, lookup, clock=lambda: float(len(engine.plans)))

    def table(self) -> list[tuple[StepKind, int, int]]:
        return [(step.kind, step.width, step.context) for step, _ in self.steps]


def test_every_kind_with_its_width_and_context() -> None:
    """The walk of `test_prompt_lookup`: the first token is of the prompt, the step at 17 was
    primed with a token from the host."""
    run = Timed()
    run.add(request(1, PROMPT, 15)).finish()
    assert run.table() == [
        (SYNCHRONOUS, 1, 10),
        (VERIFY, 8, 11),
        (SYNCHRONOUS, 1, 14),
        (SYNCHRONOUS, 1, 15),
        (SYNCHRONOUS, 1, 16),
        (PIPELINED, 1, 18),
        (PIPELINED, 1, 19),
        (PIPELINED, 1, 20),
        (PIPELINED, 1, 21),
        (VERIFY, 2, 22),
    ]
    assert not any(sampled for _, sampled in run.steps)


def test_seconds_are_from_token_to_token() -> None:
    """One submission lies between two tokens; the last step was submitted before the token before
    it was read. The step at 3 was primed from the host."""
    run = Timed(replace(GRADED, plain_rounds_before_pipeline=0))
    run.add(request(1, PLAIN, 6)).finish()
    assert [(step.kind, step.seconds) for step, _ in run.steps] == [
        (SYNCHRONOUS, 1.0),
        (PIPELINED, 1.0),
        (PIPELINED, 1.0),
        (PIPELINED, 0.0),
    ]


def test_draws_are_told_apart() -> None:
    run = Timed()
    run.add(request(1, PLAIN, 6, SEEDED)).finish()
    assert run.steps
    assert all(sampled for _, sampled in run.steps)


def test_nothing_is_told_of_steps_that_rows_share() -> None:
    run = Timed()
    run.add(request(1, PLAIN, 8), request(2, PLAIN, 8)).finish()
    assert run.steps == []


def test_nothing_is_told_of_rows_that_never_propose() -> None:
    run = Timed()
    run.add(request(1, PLAIN, 8, speculation=False)).finish()
    assert run.steps == []
