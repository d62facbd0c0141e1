"""The scheduler's side of the engine: numbers the steps, checks what comes back, retries (I7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from surefoot.core.step import RowPlan, RowResult, StepEngine, StepHandle, StepPlan
from surefoot.errors import EngineError, OutOfMemoryError, SurefootError

NO_MEMORY = "the server is out of memory for this request; try again later"


Meanwhile = Callable[[], None]
"""What the scheduler's thread can do while the engine works."""


def nothing() -> None:
    """A `Meanwhile` without anything to do."""


class EngineGoneError(RuntimeError):
    """The engine itself raised, not a forward in it: no step can be run any more."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A submitted step whose result nobody has read."""

    plan: StepPlan
    handle: StepHandle

    @property
    def step_id(self) -> int:
        return self.plan.step_id

    def names_window(self, window: int) -> bool:
        return any(row.window == window for row in self.plan.rows)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row's part of a step that was read; the step held `num_rows` rows."""

    plan: RowPlan
    result: RowResult
    num_rows: int


class Forwards:
    """Submits plans and reads results. Steps are numbered from 0 in submission order."""

    def __init__(self, engine: StepEngine) -> None:
        self._engine = engine
        self._next_step_id = 0

    def submit(self, rows: Sequence[RowPlan]) -> InFlight:
        """Queue one step. Raises `EngineGoneError`."""
        plan = StepPlan(self._next_step_id, tuple(rows))
        self._next_step_id += 1
        try:
            return InFlight(plan, self._engine.submit(plan))
        except Exception as error:
            raise EngineGoneError(f"step {plan.step_id} could not be submitted: {error}") from error

    def read(self, flight: InFlight) -> list[Outcome]:
        """Wait for the step. A row whose answer has not the shape its plan asked for comes back
        with an error. Raises `EngineGoneError`."""
        try:
            result = flight.handle.result()
        except Exception as error:
            raise EngineGoneError(f"step {flight.step_id} gave no result: {error}") from error
        answers = {row.row_id: row for row in result.rows}
        rows = flight.plan.rows
        return [Outcome(row, _checked(row, answers.get(row.row_id)), len(rows)) for row in rows]

    def run(self, rows: Sequence[RowPlan], meanwhile: Meanwhile) -> Iterator[Outcome]:
        """One synchronous step; `meanwhile` is called while it runs. A row that failed beside
        others is tried again alone, from the same committed state (what a failed forward wrote
        lies past it), so that one bad row cannot end another: an error that comes out of here is
        the row's own."""
        flight = self.submit(rows)
        meanwhile()
        for outcome in self.read(flight):
            if outcome.result.error is not None and outcome.num_rows > 1:
                yield from self.read(self.submit([outcome.plan]))
            else:
                yield outcome


def row_error(result: RowResult) -> SurefootError:
    """What the row of a failed result is failed with."""
    if result.out_of_memory:
        return OutOfMemoryError(NO_MEMORY)
    return EngineError(result.error or "the forward failed")


def _checked(plan: RowPlan, result: RowResult | None) -> RowResult:
    if result is None:
        return RowResult(plan.row_id, (), error="the engine returned nothing for this row")
    wanted = plan.num_fed - plan.sample_from
    if result.error is None and len(result.tokens) != wanted:
        error = f"the engine returned {len(result.tokens)} tokens where {wanted} were asked for"
        return RowResult(plan.row_id, (), error=error)
    return result
