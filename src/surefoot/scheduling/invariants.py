"""The scheduler's invariants I1 to I8 as assertions, each in one place.

Their meaning is told in `prompt_lookup`. A failed assertion is a bug of ours, never a client's;
its message names the invariant and the numbers.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from surefoot.core.step import RowPlan
from surefoot.scheduling.forwards import InFlight
from surefoot.scheduling.row import Row


def i1_synchronous_state(row: Row) -> None:
    """After a commit the KV holds every token but the last."""
    assert row.num_computed == len(row.tokens) - 1, (
        f"I1: row {row.row_id} holds {row.num_computed} of {len(row.tokens)} tokens"
    )


def i2_one_append(row: Row, plan: RowPlan) -> None:
    """A lookahead's row commits exactly the one position after its committed ones."""
    assert (plan.start, plan.num_fed) == (row.num_computed, 1), (
        f"I2: row {row.row_id} holds {row.num_computed} positions, the step in flight writes "
        f"[{plan.start}, {plan.end})"
    )


def i2_nothing_in_flight(stored: InFlight | None) -> None:
    """A synchronous step, so every verify round, runs with no lookahead stored."""
    assert stored is None, f"I2: step {stored.step_id} is in flight" if stored else ""


def i3_no_prime_past_proposal(
    gated_in: Iterable[Row], asked_ids: Container[int], num_proposed: int
) -> None:
    """A prime follows only when every gated-in row was asked this tick and none proposed."""
    missed = [row.row_id for row in gated_in if row.row_id not in asked_ids]
    assert not missed, f"I3: rows {missed} were not asked before a prime"
    assert not num_proposed, f"I3: a prime after {num_proposed} proposals"


def i4_ask_settled(row: Row) -> None:
    """The row's last ask was followed by its forward or retracted."""
    assert not row.asked, f"I4: row {row.row_id} is asked again before its last ask was settled"


def i4_drafter_context(row: Row, num_told: int) -> None:
    """The drafter was told the prompt and every emitted token."""
    assert num_told == len(row.tokens), (
        f"I4: row {row.row_id} has {len(row.tokens)} tokens, its drafter knows {num_told}"
    )


def i5_round_fits(row: Row, num_drafted: int, capacity: int) -> None:
    """A round stays within `max_tokens` and the context."""
    left = row.request.max_tokens - row.num_emitted
    assert num_drafted <= left - 1, f"I5: row {row.row_id} drafts {num_drafted} with {left} left"
    assert row.num_computed + num_drafted + 1 <= capacity, (
        f"I5: row {row.row_id} at {row.num_computed} drafts {num_drafted} into {capacity}"
    )


def i5_batch_fits(num_rows: int, max_batch: int) -> None:
    """Rows are asked only in a small decode batch."""
    assert num_rows <= max_batch, f"I5: asked with {num_rows} rows, at most {max_batch}"


def i6_no_lookahead(stored: InFlight | None, what: str) -> None:
    """Rows join, and are preempted, only once a stored lookahead was torn down."""
    assert stored is None, f"I6: {what} with step {stored.step_id} in flight" if stored else ""


def i6_window_idle(window: int, stored: InFlight | None) -> None:
    """A window is given back only when no step in flight names it."""
    assert stored is None or not stored.names_window(window), (
        f"I6: window {window} is freed with its step in flight"
    )


def i7_failed_alone(row: Row, num_rows: int) -> None:
    """A row is failed only by a synchronous step that held no other row."""
    assert num_rows == 1, f"I7: row {row.row_id} is failed by a step of {num_rows} rows"


def i8_not_mid_step(row: Row, stored: InFlight | None) -> None:
    """A cancelled row ends when no step in flight feeds it."""
    assert row.window is not None
    assert stored is None or not stored.names_window(row.window), (
        f"I8: row {row.row_id} is cut while its step is in flight"
    )
