"""How long a row's own steps take, as a cost table counts them: from token to token."""

from __future__ import annotations

from surefoot.core.step import FromStep
from surefoot.scheduling.forwards import Outcome
from surefoot.scheduling.row import Row
from surefoot.speculation.live_costs import LiveStep, StepKind


def lone_step(row: Row, outcome: Outcome, primed: bool, now: float) -> LiveStep | None:
    """The step that was just read, before it is committed; `now` by the row's clock. None for one
    that no table states: beside other rows or in a prompt, a reply's first, or a `primed` step
    that was fed from the host (half of its time passed under the step before)."""
    plan, before = outcome.plan, row.clock.last_token
    if outcome.num_rows != 1 or plan.sample_from or before is None:
        return None
    if isinstance(plan.feed, FromStep):
        kind = StepKind.PIPELINED
    elif primed:
        return None
    else:
        kind = StepKind.VERIFY if plan.num_fed > 1 else StepKind.SYNCHRONOUS
    return LiveStep(kind, plan.num_fed, plan.start, now - before)
