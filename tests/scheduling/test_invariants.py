"""Every invariant I1 to I8, broken on purpose: the assertion that guards it names it.

Where the scheduler's own seams allow (its rows' drafters, its engine, its operations), it is the
scheduler that is led astray; the rest hand the guard a state that must not be.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from support.fakes import ScriptedEngine
from support.lookup_texts import DiaryDrafter
from support.scheduler_runs import Run, request
from surefoot.core.request import SamplingParams
from surefoot.core.step import RowPlan, RowSampling, StepPlan
from surefoot.scheduling import invariants, proposing
from surefoot.scheduling.forwards import InFlight
from surefoot.scheduling.lookahead import Lookahead
from surefoot.scheduling.proposing import Asked, PromptLookup
from surefoot.scheduling.row import Row
from surefoot.speculation.config import PromptLookupConfig

PROMPT = (1, 2, 3)


def decoding_row(row_id: int = 1, window: int = 0) -> Row:
    """A row whose KV holds its prompt, with one token emitted."""
    row = Row(request(row_id, PROMPT, 9))
    row.tokens.append(4)
    row.num_computed = 3
    row.window = window
    return row


def plan_of(row: Row, feed: tuple[int, ...] = (4,), start: int | None = None) -> RowPlan:
    assert row.window is not None
    start = row.num_computed if start is None else start
    return RowPlan(row.row_id, row.window, feed, start, 0, RowSampling(SamplingParams()))


def flight_of(*plans: RowPlan) -> InFlight:
    plan = StepPlan(5, plans)
    return InFlight(plan, ScriptedEngine().submit(StepPlan(0, (plan_of(fresh_row(), start=0),))))


def fresh_row() -> Row:
    row = Row(request(99, PROMPT))
    row.window = 3
    return row


def broken(guard: str) -> AbstractContextManager[object]:
    return pytest.raises(AssertionError, match=f"^{re.escape(guard)}:")


def test_the_untouched_state_passes_every_guard() -> None:
    row = decoding_row()
    flight = flight_of(plan_of(row))
    invariants.i1_synchronous_state(row)
    invariants.i2_one_append(row, plan_of(row))
    invariants.i2_nothing_in_flight(None)
    invariants.i3_no_prime_past_proposal([row], {1}, 0)
    invariants.i4_ask_settled(row)
    invariants.i4_drafter_context(row, 4)
    invariants.i5_round_fits(row, 7, 11)
    invariants.i5_batch_fits(2, 2)
    invariants.i6_no_lookahead(None, "admission")
    invariants.i6_window_idle(1, flight)
    invariants.i7_failed_alone(row, 1)
    invariants.i8_not_mid_step(row, None)


@pytest.mark.parametrize("num_computed", [0, 2, 4])
def test_i1_the_kv_holds_every_token_but_the_last(num_computed: int) -> None:
    row = decoding_row()
    row.num_computed = num_computed
    with broken("I1"):
        invariants.i1_synchronous_state(row)


@pytest.mark.parametrize(("feed", "start"), [((4,), 2), ((4,), 4), ((4, 5), 3)])
def test_i2_one_uncommitted_position_after_the_committed_ones(
    feed: tuple[int, ...], start: int
) -> None:
    row = decoding_row()
    with broken("I2"):
        invariants.i2_one_append(row, plan_of(row, feed, start))


def test_i2_no_synchronous_step_beside_a_lookahead() -> None:
    with broken("I2"):
        invariants.i2_nothing_in_flight(flight_of(plan_of(decoding_row())))


def test_i2_a_verify_round_is_never_stored_as_a_lookahead() -> None:
    row = decoding_row()
    with pytest.raises(AssertionError):
        Lookahead().store(flight_of(plan_of(row, (4, 5))))
    lookahead = Lookahead()
    lookahead.store(flight_of(plan_of(row)))
    with pytest.raises(AssertionError):
        lookahead.store(flight_of(plan_of(row)))


def test_i2_check_finds_a_row_that_moved_under_its_step() -> None:
    run = Run(ScriptedEngine(1, 64)).add(request(1, PROMPT, 20))
    run.tick(3)
    row = run.scheduler._rows[1]
    row.tokens.append(7)
    row.num_computed += 1
    with broken("I2"):
        run.scheduler.check()


def test_i3_a_row_not_asked_or_proposing_forbids_the_prime() -> None:
    row = decoding_row()
    with broken("I3"):
        invariants.i3_no_prime_past_proposal([row], set(), 0)
    with broken("I3"):
        invariants.i3_no_prime_past_proposal([row], {1}, 1)


class Doubtful(DiaryDrafter):
    """Says that plain rounds pipeline whatever it answers."""

    def pipelines_plain_rounds(self) -> bool:
        return True


class PrimesAnyway(PromptLookup):
    """Rule 4 broken: primes after proposals."""

    def may_prime(self, asked: Asked, rows: object, capacity: int) -> bool:
        return True


def copying_run(lookup: PromptLookup) -> Run:
    text = tuple(range(10, 40))
    engine = ScriptedEngine(1, 128, replies={text: text})
    return Run(engine, None, lookup).add(request(1, text, 30))


def drafters(kind: Callable[..., DiaryDrafter]) -> Callable[[frozenset[int]], DiaryDrafter]:
    return lambda end_ids: kind(PromptLookupConfig(), end_ids)


def test_i3_is_asserted_where_the_scheduler_primes() -> None:
    copying_run(PromptLookup(drafters(Doubtful))).finish()
    with broken("I3"):
        copying_run(PrimesAnyway(drafters(DiaryDrafter))).finish()


class Forgetful(PromptLookup):
    """Rule 3 broken: proposals in flight are never retracted."""

    def retract(self, asked: Asked) -> None:
        pass


def test_i4_an_ask_without_forward_must_be_retracted() -> None:
    text = tuple(range(10, 40))
    reply = (1, 2, 3, 4, 5, 6, *text[:20])
    engine = ScriptedEngine(1, 128, replies={text: reply})
    run = Run(engine, None, Forgetful(drafters(DiaryDrafter))).add(request(1, text, 26))
    with broken("I4"):
        run.finish()


def test_i4_the_drafter_is_told_every_token() -> None:
    row = decoding_row()
    lookup = PromptLookup(drafters(DiaryDrafter))
    lookup.committed(row, (), 0, (4,))
    row.tokens += [5, 6]
    with broken("I4"):
        lookup.committed(row, (), 0, (6,))


class Greedy(DiaryDrafter):
    """Proposes more than it was allowed."""

    def draft_block(self, budget: int) -> list[int]:
        return [1] * (budget + 1)


def test_i5_a_round_stays_within_max_tokens() -> None:
    with broken("I5"):
        copying_run(PromptLookup(drafters(Greedy))).finish()


def test_i5_a_round_stays_within_the_context() -> None:
    row = decoding_row()
    with broken("I5"):
        invariants.i5_round_fits(row, 5, 8)
    with broken("I5"):
        invariants.i5_batch_fits(3, 2)


class Crowding(PromptLookup):
    """The gate broken: rows are asked in any batch."""

    def gated_in(self, rows, capacity, in_flight):  # type: ignore[no-untyped-def]
        return [row for row in rows if row.drafter is not None]


def test_i5_only_a_small_batch_is_asked() -> None:
    run = Run(ScriptedEngine(3, 64), None, Crowding(drafters(DiaryDrafter), max_batch=2))
    run.add(*(request(index, (index, 5), 9) for index in range(3)))
    with broken("I5"):
        run.finish()


def test_i6_nobody_joins_or_is_preempted_beside_a_lookahead() -> None:
    flight = flight_of(plan_of(decoding_row()))
    for what in ("admission", "preemption"):
        with broken("I6"):
            invariants.i6_no_lookahead(flight, what)
    run = Run(ScriptedEngine(2, 64)).add(request(1, PROMPT, 20))
    run.tick(3)
    with broken("I6"):
        run.scheduler._roster.admit(run.scheduler.lookahead)


def test_i6_a_window_in_flight_is_not_freed() -> None:
    run = Run(ScriptedEngine(1, 64)).add(request(1, PROMPT, 20))
    run.tick(3)
    stored = run.scheduler.lookahead
    assert stored is not None
    with broken("I6"):
        run.scheduler._roster.departures.free(run.scheduler._rows[1], stored)


def test_i7_only_a_row_alone_is_failed() -> None:
    with broken("I7"):
        invariants.i7_failed_alone(decoding_row(), 2)


def test_i8_a_cancelled_row_is_not_cut_mid_step() -> None:
    run = Run(ScriptedEngine(1, 64)).add(request(1, PROMPT, 20))
    run.tick(3)
    with broken("I8"):
        run.scheduler._end_by_cancel(run.scheduler._rows[1])


def test_every_invariant_is_told_guarded_and_used() -> None:
    """The docstring tells I1 to I8; each guard is called from the scheduler's code."""
    told = set(re.findall(r"^- I(\d)", proposing.__doc__ or "", re.MULTILINE))
    assert told == set("12345678")
    guards = {name for name in vars(invariants) if re.match(r"i\d_", name)}
    assert {name[1] for name in guards} == told
    folder = Path(invariants.__file__).parent
    code = "".join(path.read_text() for path in folder.glob("*.py") if path.name != "invariants.py")
    assert [name for name in sorted(guards) if f"invariants.{name}(" not in code] == []
