"""Continuous batching: decides what each step feeds, reads it, and says what each row emitted.

Owns the steps and the stored lookahead; the roster says who runs, the storage gives rows their
memory. It knows the engine only as something that turns plans into results, sees integers only,
and runs on one thread. `docs/continuous-batching.md` draws a tick; the rules and invariants stand
in `prompt_lookup`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from surefoot.config import SchedulerConfig
from surefoot.core.events import Event, Failed, Finished, FinishReason
from surefoot.core.request import Request
from surefoot.core.step import RowPlan, StepEngine
from surefoot.errors import ContextLengthError, QueueTimeoutError, SurefootError
from surefoot.scheduling import invariants
from surefoot.scheduling.committing import commit_result, draft_of
from surefoot.scheduling.forwards import (
    Forwards,
    InFlight,
    Meanwhile,
    Outcome,
    nothing,
    row_error,
)
from surefoot.scheduling.integrity import check_integrity
from surefoot.scheduling.lookahead import Lookahead
from surefoot.scheduling.planning import chunk_lengths, plan_after, plan_chunk, plan_round
from surefoot.scheduling.proposing import Asked, LookupCounts, PromptLookup
from surefoot.scheduling.roster import Roster
from surefoot.scheduling.row import Row
from surefoot.scheduling.step_times import lone_step
from surefoot.scheduling.storage import KvCounts, RestorePrefix, RowStorage


class Scheduler:
    """`clock` gives seconds, for `Timings` and the queue's time limit: no other decision depends
    on it. `storage` None: windows alone, without a budget, and `restore_prefix` says what they
    hold beforehand."""

    def __init__(
        self,
        engine: StepEngine,
        config: SchedulerConfig,
        prompt_lookup: PromptLookup | None = None,
        clock: Callable[[], float] = time.monotonic,
        restore_prefix: RestorePrefix | None = None,
        storage: RowStorage | None = None,
    ) -> None:
        assert config.max_rows <= engine.num_windows, (config.max_rows, engine.num_windows)
        self._config = config
        self._capacity = engine.capacity
        self._lookup = prompt_lookup if prompt_lookup is not None else PromptLookup()
        self._clock = clock
        self._forwards = Forwards(engine)
        self._storage = storage or RowStorage(engine, restore_prefix=restore_prefix)
        self._roster = Roster(config, self._storage, clock)
        self._events: list[Event] = []
        self._lookahead = Lookahead()

    @property
    def max_open(self) -> int:
        """Requests that may run and wait at once."""
        return self._roster.max_open

    @property
    def _rows(self) -> dict[int, Row]:
        return self._roster.running

    @property
    def num_running(self) -> int:
        return len(self._rows)

    @property
    def num_waiting(self) -> int:
        return len(self._roster.waiting)

    @property
    def lookup_counts(self) -> LookupCounts:
        """What prompt lookup did so far; it goes on changing."""
        return self._lookup.counts

    def kv_counts(self) -> KvCounts:
        """What the KV memory holds now."""
        return self._storage.counts()

    @property
    def has_work(self) -> bool:
        """A tick would do something: rows, a step in flight, or events to hand out."""
        open_rows = self.num_running + self.num_waiting
        return bool(open_rows or self._events or self._lookahead.stored is not None)

    @property
    def lookahead(self) -> InFlight | None:
        """The stored lookahead: submitted and not read."""
        return self._lookahead.stored

    def add(self, request: Request) -> None:
        """Queue a request. Raises `QueueFullError`, or `ContextLengthError` for a prompt that
        the gate should have refused."""
        if len(request.prompt_ids) > self._capacity:
            raise ContextLengthError(
                f"the prompt has {len(request.prompt_ids)} tokens, the context {self._capacity}"
            )
        self._roster.enter(request)

    def cancel(self, request_id: int) -> None:
        """End a request: at once if it waits, else after the next tick that has no step of its
        in flight (I8). Unknown ids are ignored. The event comes from the next `tick`."""
        waiting = self._roster.withdraw(request_id)
        if waiting is not None:
            self._report_end(waiting, FinishReason.CANCELLED, waiting.request.text.finish())
        elif request_id in self._rows:
            self._rows[request_id].cancelled = True

    def preempt(self, request_id: int) -> bool:
        """Take a running row's window away and put it first in the queue of its priority; it
        goes on from its blocks, or reads its prompt and its emitted tokens again. False if no
        such row runs (any more)."""
        if self._lookahead.stored is not None:
            self._advance(())
        row = self._rows.get(request_id)
        if row is None or row.cancelled:
            return False
        self._roster.set_aside(row, self._lookahead.stored)
        return True

    @property
    def steps_next(self) -> bool:
        """The next tick submits a step before it reads one."""
        return bool(self._rows) and self._lookahead.stored is None

    def tick(self, meanwhile: Meanwhile = nothing) -> list[Event]:
        """Advance every row by one step and return what happened, oldest first. `meanwhile` is
        called while a synchronous step runs, if there is one. Raises `EngineGoneError` if the
        engine is dead; a failing forward is an event."""
        self._refuse_overdue()
        if self._lookahead.stored is None:
            self._end_cancelled()
            self._roster.admit(self._lookahead.stored)
            if self._rows:
                self._synchronous_tick(meanwhile)
        elif self._roster.joiner_waits:
            self._advance(())
        else:
            self._pipelined_tick()
        events, self._events = self._events, []
        return events

    def fail_all(self, error: SurefootError) -> list[Event]:
        """After a tick raised: every open request ends with `error`, and the scheduler is as
        new. Returns the events, those of the broken tick first."""
        events = self._events
        self._events = []
        self._lookahead = Lookahead()
        return events + [Failed(row.row_id, error) for row in self._roster.clear()]

    def check(self) -> None:
        """Assert that ledger, rows and lookahead agree. Cheap; called when idle and in tests."""
        check_integrity(
            self._storage,
            self._rows.values(),
            self._roster.departures.rows,
            self._roster.waiting,
            self._lookahead.stored,
        )

    def _refuse_overdue(self) -> None:
        limit = self._config.queue_timeout_s
        for row in self._roster.withdraw_overdue():
            error = QueueTimeoutError(f"no place came free within {limit:g} s; try again later")
            self._events.append(Failed(row.row_id, error))

    def _synchronous_tick(self, meanwhile: Meanwhile) -> None:
        """One step with nothing in flight: prompt chunks, verify rounds and plain rows together.
        Then, by rule 4, perhaps a prime."""
        invariants.i2_nothing_in_flight(self._lookahead.stored)
        rows = list(self._rows.values())
        for row in rows:
            if not row.decoding:
                self._storage.look_again(row)
        chunks = chunk_lengths(rows, self._config)
        asked = self._lookup.ask([row for row in rows if row.decoding], self._capacity)
        plans: list[RowPlan] = []
        for row in rows:
            if row.decoding:
                invariants.i5_round_fits(row, len(asked.draft_of(row)), self._capacity)
                plans.append(plan_round(row, asked.draft_of(row)))
            elif row.row_id in chunks:
                plans.append(plan_chunk(row, chunks[row.row_id]))
        self._lookup.forwarded(asked)
        self._run_and_commit(plans, meanwhile)
        self._roster.departures.free_idle(None)
        if chunks:
            return
        self._lookup.count_synchronous_tick(asked)
        if not self._rows:
            self._lookup.pipeline_resumed()
        elif self._may_prime(asked):
            self._prime(asked, [plan_round(row) for row in self._rows.values()])

    def _may_prime(self, asked: Asked) -> bool:
        rows = list(self._rows.values())
        pipelines = self._lookup.may_prime(asked, rows, self._capacity)
        return self._config.lookahead and pipelines and not self._roster.joiner_waits

    def _pipelined_tick(self) -> None:
        """One step is in flight: ask, prime the one after it or not, read it (rules 1 to 3)."""
        staying = [
            row for row in self._rows.values() if not row.cancelled and row.room(self._capacity) > 1
        ]
        asked = self._lookup.ask(staying, self._capacity, in_flight=True)
        if asked.num_proposed:
            self._advance(())
            self._lookup.retract(asked)
        else:
            self._lookup.forwarded(asked)
            self._advance(staying, asked)

    def _advance(self, staying: Sequence[Row], asked: Asked | None = None) -> None:
        """Read and commit the stored lookahead, after priming the step after it for the rows
        that are known to go on. Without such rows this tears the lookahead down (I6): what rows
        that left had in it is unwound, the others' tokens are committed, so no step is lost."""
        flight = self._lookahead.take()
        if staying and asked is not None:
            self._prime(asked, [plan_after(row, flight.step_id) for row in staying])
        failed = self._commit_flight(flight, ())
        if failed and self._lookahead.stored is not None:
            self._commit_flight(self._lookahead.take(), failed)
        for row in failed:
            self._run_and_commit([plan_round(row)])
        self._roster.departures.free_idle(self._lookahead.stored)

    def _prime(self, asked: Asked, plans: Sequence[RowPlan]) -> None:
        planned = {plan.row_id for plan in plans}
        gated_in = self._lookup.gated_in(
            [self._rows[row_id] for row_id in planned], self._capacity, in_flight=True
        )
        invariants.i3_no_prime_past_proposal(gated_in, asked.row_ids, asked.num_proposed)
        self._lookup.pipeline_resumed()
        self._lookahead.store(self._forwards.submit(plans))

    def _commit_flight(self, flight: InFlight, unwound: Sequence[Row]) -> list[Row]:
        """Read a lookahead and commit its rows. Returns the live rows that failed in it: their
        position is unwound by doing nothing, the next plan names it again (I7)."""
        failed: list[Row] = []
        for outcome in self._forwards.read(flight):
            row = self._rows.get(outcome.plan.row_id)
            if row is None or row in unwound:
                continue
            invariants.i2_one_append(row, outcome.plan)
            if outcome.result.error is not None:
                failed.append(row)
            else:
                self._commit(row, outcome, primed=True)
        return failed

    def _run_and_commit(self, plans: Sequence[RowPlan], meanwhile: Meanwhile = nothing) -> None:
        """Run one synchronous step and commit every row; rows that fail alone are failed."""
        for outcome in self._forwards.run(plans, meanwhile):
            row = self._rows[outcome.plan.row_id]
            if outcome.result.error is not None:
                invariants.i7_failed_alone(row, outcome.num_rows)
                self._roster.leave(row, failed=True)
                self._events.append(Failed(row.row_id, row_error(outcome.result)))
            else:
                self._commit(row, outcome)

    def _commit(self, row: Row, outcome: Outcome, primed: bool = False) -> None:
        """The one place that moves a row and says so."""
        plan, now = outcome.plan, self._clock()
        timed = self._lookup.on_step is not None
        step = lone_step(row, outcome, primed, now) if timed else None
        done = commit_result(row, plan, outcome.result, self._capacity, now)
        self._storage.seal(row)
        if done is None:
            return
        self._lookup.committed(row, draft_of(plan), done.accepted, done.tokens)
        self._lookup.timed(row, step)
        self._events.append(done.event)
        if done.reason is not None:
            self._roster.leave(row)
            self._report_end(row, done.reason, done.held_back)
            return
        invariants.i1_synchronous_state(row)
        if row.cancelled:
            self._end_by_cancel(row)

    def _end_cancelled(self) -> None:
        for row in [row for row in self._rows.values() if row.cancelled]:
            self._end_by_cancel(row)
        self._roster.departures.free_idle(None)

    def _end_by_cancel(self, row: Row) -> None:
        invariants.i8_not_mid_step(row, self._lookahead.stored)
        self._roster.leave(row)
        self._report_end(row, FinishReason.CANCELLED, row.request.text.finish())

    def _report_end(self, row: Row, reason: FinishReason, text: str) -> None:
        timings = row.timings(self._clock())
        self._events.append(
            Finished(row.row_id, reason, text, row.num_prompt, row.num_emitted, timings)
        )
