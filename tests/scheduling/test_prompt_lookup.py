"""Verify rounds in the scheduler: the lookahead rules as plans, and failing rounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from support.fakes import Fault, plan_table
from support.lookup_runs import GRADED, PLAIN, PROMPT, REPLIES, Lookup
from support.scheduler_runs import alone, request
from surefoot.config import SchedulerConfig
from surefoot.core.events import Failed, TokensEmitted
from surefoot.core.step import RowPlan, StepPlan


class TestRules:
    def test_the_walk_of_one_row_as_plans(self) -> None:
        run = Lookup(REPLIES).add(request(1, PROMPT, 15)).finish()
        assert plan_table(run.engine.plans) == [
            [(1, 0, PROMPT, 9)],
            [(1, 10, (1,), 0)],  # asked, no match for `20 1`
            [(1, 11, (2, 3, 4, 5, 6, 7, 8, 9), 0)],  # 3 4 land, 99 corrects
            [(1, 14, (99,), 0)],  # three proposal-free asks before the pipeline
            [(1, 15, (50,), 0)],
            [(1, 16, (51,), 0)],
            [(1, 17, (52,), 0)],  # primed
            [(1, 18, "<6", 0)],
            [(1, 19, "<7", 0)],
            [(1, 20, "<8", 0)],
            [(1, 21, "<9", 0)],  # read with no prime: `1 2` proposes
            [(1, 22, (3, 4), 0)],  # asked again from `1 2 3`; max_tokens leaves room for one
        ]
        assert run.tokens(1) == REPLIES[PROMPT][:15]
        assert run.diary() == "nodvnononononononodordv"

    def test_a_proposal_in_flight_makes_the_next_tick_synchronous(self) -> None:
        """Rule 3: read with no prime, every ask retracted, then a round from the new token."""
        run = Lookup(REPLIES).add(request(1, PROMPT, 20))
        run.tick()
        while not run.diary().endswith("dor"):
            run.tick()
        assert run.scheduler.lookahead is None
        steps = len(run.engine.plans)
        run.tick()
        assert [row.num_fed for row in run.engine.plans[steps].rows] == [7]
        assert run.scheduler.lookahead is None
        assert run.diary().endswith("dordv")

    def test_proposal_free_ticks_stay_pipelined(self) -> None:
        run = Lookup(REPLIES).add(request(1, PLAIN, 12))
        assert run.tick_kinds() == "...LLLLLLLL."  # prefill, three waits, then primes to the end
        assert "d" not in run.diary()

    def test_the_wait_before_pipelining_is_configuration(self) -> None:
        config = replace(GRADED, plain_rounds_before_pipeline=0)
        run = Lookup(REPLIES, config).add(request(1, PLAIN, 12))
        assert run.tick_kinds() == ".LLLLLLLLLL."

    def test_a_verify_round_rides_in_the_same_plan_as_the_other_rows(self) -> None:
        run = Lookup(REPLIES).add(request(1, PROMPT, 4), request(2, PLAIN, 5)).finish()
        assert plan_table(run.engine.plans)[:3] == [
            [(1, 0, PROMPT, 9), (2, 0, PLAIN, 1)],
            [(1, 10, (1,), 0), (2, 2, (100,), 0)],
            [(1, 11, (2, 3), 0), (2, 3, (101,), 0)],  # one draft: max_tokens leaves no more
        ]
        assert run.tokens(1) == (1, 2, 3, 4)
        assert run.tokens(2) == (100, 101, 102, 103, 104)

    def test_a_verify_round_rides_beside_a_prompt_chunk(self) -> None:
        scheduling = SchedulerConfig(max_rows=2, chunk_busy=2)
        run = Lookup(REPLIES, scheduling=scheduling).add(request(1, PROMPT, 20))
        run.tick(2)
        run.add(request(2, (7, 7, 7, 7), 2))
        run.tick()
        assert plan_table(run.engine.plans)[-1] == [
            (1, 11, (2, 3, 4, 5, 6, 7, 8, 9), 0),
            (2, 0, (7, 7), 2),
        ]
        run.finish()
        assert run.tokens(1) == REPLIES[PROMPT]

    def test_one_row_that_waits_keeps_both_synchronous_and_then_both_pipeline(self) -> None:
        """Row 1 verifies at its second decode tick and then waits three asks; row 2, which never
        proposes, is synchronous with it and pipelined with it."""
        run = Lookup(REPLIES).add(request(1, PROMPT, 10), request(2, PLAIN, 14))
        kinds = run.tick_kinds()
        assert kinds == ".....LLLLLLLL."
        assert [len(plan.rows) for plan in run.engine.plans] == [2] * 8 + [1] * 6

    def test_tokens_of_a_round_come_in_one_event(self) -> None:
        run = Lookup(REPLIES).add(request(1, PROMPT, 20, stop="zz"))
        run.tick(2)
        events = run.tick()
        letters = "".join(chr(ord("a") + token % 26) for token in (3, 4, 99))
        assert events == [TokensEmitted(1, (3, 4, 99), letters)]

    def test_counts_in_timings(self) -> None:
        run = Lookup(REPLIES).add(request(1, PROMPT, 15)).finish()
        timings = run.finished(1).timings
        assert (timings.draft_rounds, timings.draft_n, timings.draft_n_accepted) == (2, 8, 3)
        assert run.diaries.drafters[0].verified == [(7, 2), (1, 1)]

    def test_each_event_tells_how_far_the_row_is_where_asked(self) -> None:
        asked = replace(request(1, PROMPT, 15), timings_per_token=True)
        run = Lookup(REPLIES).add(asked).finish()
        events = [event for event in run.events if isinstance(event, TokensEmitted)]
        lengths = [len(event.token_ids) for event in events]
        assert max(lengths) == 3
        told = [event.timings for event in events]
        assert all(timings is not None for timings in told)
        assert [t.predicted_n for t in told if t] == list(accumulate(lengths))
        rounds = [t.draft_rounds for t in told if t]
        assert rounds == sorted(rounds)
        assert set(rounds) == {0, 1, 2}
        assert told[-1] == run.finished(1).timings


class TestFaults:
    @staticmethod
    def run_with(fault: Fault) -> Lookup:
        run = Lookup(REPLIES)
        run.engine.fault = fault
        return run.add(request(1, PROMPT, 20), request(2, PLAIN, 20)).finish()

    def test_a_verify_round_that_fails_for_good_fails_its_row_alone(self) -> None:
        def fault(plan: StepPlan, row: RowPlan) -> str | None:
            wide = row.num_fed > 1 and row.start >= len(PROMPT)
            return "verify failed" if wide else None

        run = self.run_with(fault)
        end = run.end(1)
        assert isinstance(end, Failed)
        assert end.error.message == "verify failed"
        assert run.tokens(1) == (1, 2)
        assert run.tokens(2) == REPLIES[PLAIN][:20]

    def test_a_joint_failure_of_a_verify_step_is_retried_row_by_row(self) -> None:
        def fault(plan: StepPlan, row: RowPlan) -> str | None:
            return "joint" if any(each.num_fed == 8 for each in plan.rows[:-1]) else None

        run = self.run_with(fault)
        assert plan_table(run.engine.plans)[2:5] == [
            [(1, 11, (2, 3, 4, 5, 6, 7, 8, 9), 0), (2, 3, (101,), 0)],
            [(1, 11, (2, 3, 4, 5, 6, 7, 8, 9), 0)],
            [(2, 3, (101,), 0)],
        ]
        assert run.tokens(1) == REPLIES[PROMPT]
        assert run.tokens(2) == REPLIES[PLAIN][:20]
        assert run.diaries.drafters[0].verified[0] == (7, 2)

    def test_any_one_failing_step_of_a_lone_row_ends_it_or_changes_nothing(self) -> None:
        """A synchronous step that fails alone ends the row; a lookahead is decoded again."""
        outcomes = set()
        for bad in range(24):
            run = Lookup(REPLIES)
            run.engine.fault = lambda plan, row, bad=bad: "x" if plan.step_id == bad else None
            run.add(request(1, PROMPT, 20)).finish()
            tokens = run.tokens(1)
            assert tokens == REPLIES[PROMPT][: len(tokens)]
            outcomes.add((type(run.end(1)).__name__, len(tokens) == 20))
        assert outcomes == {("Failed", False), ("Finished", True)}


def test_two_rows_speculate_side_by_side_and_equal_alone() -> None:
    requests = [request(1, PROMPT, 20), request(2, (1, 2, 3) * 5, 20)]
    run = Lookup(REPLIES).add(*requests).finish()
    for one in requests:
        assert run.tokens(one.request_id) == alone(run.engine, one)
