"""The self-check: ledger, rows, queue and lookahead tell the same story."""

from __future__ import annotations

from collections.abc import Collection

from surefoot.scheduling import invariants
from surefoot.scheduling.forwards import InFlight
from surefoot.scheduling.row import Row
from surefoot.scheduling.storage import RowStorage


def check_integrity(
    storage: RowStorage,
    rows: Collection[Row],
    departed: Collection[Row],
    waiting: Collection[Row],
    stored: InFlight | None,
) -> None:
    """Assert that every window is free or held by one running or departed row, that waiting rows
    have none, that the memory is accounted for, and that each row's committed state fits the step
    in flight (I1, I2, I4, I6)."""
    storage.check([*rows, *departed], rows, waiting)
    for row in waiting:
        assert row.window is None, f"row {row.row_id} waits with window {row.window}"
        assert row.num_computed == 0, f"row {row.row_id} waits with {row.num_computed} computed"
    for row in departed:
        assert stored is not None, f"row {row.row_id} left and its window was not freed"
        assert row.row_id in {plan.row_id for plan in stored.plan.rows}, row.row_id
    for row in rows:
        invariants.i4_ask_settled(row)
    if stored is None:
        return
    planned = {plan.row_id: plan for plan in stored.plan.rows}
    for row in rows:
        assert row.row_id in planned, f"row {row.row_id} is not in the step in flight"
        invariants.i1_synchronous_state(row)
        invariants.i2_one_append(row, planned[row.row_id])
