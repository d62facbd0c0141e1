"""Verify rounds, lookahead rules and the break-even rule in the scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from fakes import Fault, ScriptedEngine, plan_table
from lookup_texts import Diaries, landing_text
from scheduler_runs import Run, alone, request
from surefoot.config import SchedulerConfig
from surefoot.core.events import Event, Failed, Finished, FinishReason, TokensEmitted
from surefoot.core.request import Request, SamplingParams
from surefoot.core.step import RowPlan, StepPlan
from surefoot.scheduling.prompt_lookup import PromptLookup
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig

GATED = PromptLookupConfig(policy=DraftPolicy.GATED)
GRADED = PromptLookupConfig(policy=DraftPolicy.GRADED)
PROMPT = (1, 2, 3, 4, 5, 6, 7, 8, 9, 20)
PLAIN = (60, 61)
REPLIES: dict[tuple[int, ...], tuple[int, ...]] = {
    PROMPT: (1, 2, 3, 4, 99, 50, 51, 52, 53, 54, 1, 2, 3, 4, 5, 70, 71, 72, 73, 74),
    PLAIN: tuple(range(100, 140)),
}


class Lookup(Run):
    """A run with prompt lookup whose drafters keep diaries."""

    def __init__(
        self,
        replies: dict[tuple[int, ...], tuple[int, ...]],
        config: PromptLookupConfig = GRADED,
        *,
        num_windows: int = 2,
        capacity: int = 4096,
        max_batch: int = 2,
        scheduling: SchedulerConfig | None = None,
    ) -> None:
        self.diaries = Diaries(config)
        self.lookup = PromptLookup(self.diaries, max_batch=max_batch)
        engine = ScriptedEngine(num_windows, capacity, vocab=50, replies=replies)
        super().__init__(engine, scheduling, self.lookup)

    def diary(self, index: int = 0) -> str:
        return self.diaries.drafters[index].diary

    def tick_kinds(self) -> str:
        """Tick to the end, a letter a tick: `L` it leaves a lookahead stored, `.` it does not."""
        kinds = ""
        while self.scheduler.has_work:
            self.tick()
            kinds += "." if self.scheduler.lookahead is None else "L"
        return kinds


def is_end(event: Event) -> bool:
    return isinstance(event, Finished | Failed)


def reply_run(
    landings: list[int], width: int, config: PromptLookupConfig
) -> tuple[Lookup, tuple[int, ...], tuple[int, ...]]:
    prompt, reply = landing_text(landings, width)
    run = Lookup({prompt: reply}, config, num_windows=1)
    run.add(request(1, prompt, len(reply)))
    return run, prompt, reply


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


class TestGate:
    """I5."""

    def test_no_row_is_asked_in_a_batch_above_the_limit(self) -> None:
        for max_batch, asked in [(1, False), (2, True)]:
            run = Lookup(REPLIES, max_batch=max_batch)
            run.add(request(1, PROMPT, 8), request(2, PLAIN, 30)).finish()
            assert ("d" in run.diary(0)) is asked
            assert run.tokens(1) == REPLIES[PROMPT][:8]

    def test_a_row_not_asked_keeps_observing_and_is_asked_once_it_is_alone(self) -> None:
        run = Lookup(REPLIES, max_batch=1)
        run.add(request(1, PROMPT, 20), request(2, PLAIN, 8)).finish()
        assert run.diary(0).startswith("oooooon")
        assert "d" in run.diary(0)
        assert run.tokens(1) == REPLIES[PROMPT]

    def test_a_prime_waits_until_a_newly_gated_row_was_asked(self) -> None:
        """I3: row 2 leaves in a synchronous tick; row 1 was not asked in it, so no prime."""
        run = Lookup(REPLIES, max_batch=1)
        run.add(request(1, PLAIN, 12), request(2, (5, 5), 2))
        run.tick(2)
        assert run.finished(2).completion_tokens == 2
        assert run.scheduler.lookahead is None
        assert run.diary(0) == "o"

    @pytest.mark.parametrize("max_tokens", range(1, 16))
    def test_a_round_never_exceeds_max_tokens(self, max_tokens: int) -> None:
        run = Lookup(REPLIES).add(request(1, PROMPT, max_tokens)).finish()
        assert run.tokens(1) == REPLIES[PROMPT][:max_tokens]
        plain = len(PROMPT) + max_tokens - 1
        assert max(row.end for plan in run.engine.plans for row in plan.rows) <= plain

    @pytest.mark.parametrize("capacity", range(10, 25))
    def test_a_round_never_exceeds_the_context(self, capacity: int) -> None:
        run = Lookup(REPLIES, capacity=capacity).add(request(1, PROMPT, 20)).finish()
        assert run.tokens(1) == REPLIES[PROMPT][: capacity - 9]
        assert run.reason(1) is FinishReason.LENGTH

    @pytest.mark.parametrize(
        "one",
        [
            request(1, PROMPT, 20, speculation=False),
            request(1, PROMPT, 20, SamplingParams(temperature=0.0, logprobs=0)),
        ],
        ids=["asked not to", "logprobs"],
    )
    def test_ineligible_rows_have_no_drafter_and_pipeline_at_once(self, one: Request) -> None:
        run = Lookup(REPLIES).add(one)
        assert run.tick_kinds() == ".LLLLLLLLLLLLLLLLLL."
        assert run.diaries.drafters == []
        assert run.finished(1).timings.draft_rounds == 0


class TestEnds:
    """Stops inside an accepted block. The second round feeds `2` and drafts 3 4 5 6 7 8 9."""

    REPLIES: ClassVar = {PROMPT: (1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 30)}

    @pytest.mark.parametrize(
        ("end_token", "proposed", "accepted"), [(3, 1, 1), (5, 3, 3), (9, 7, 7), (20, 7, 7)]
    )
    def test_an_end_token_cuts_the_draft(
        self, end_token: int, proposed: int, accepted: int
    ) -> None:
        run = Lookup(self.REPLIES).add(request(1, PROMPT, 30, end_ids={end_token})).finish()
        expected = self.REPLIES[PROMPT]
        assert run.tokens(1) == expected[: expected.index(end_token) + 1]
        assert run.reason(1) is FinishReason.STOP
        timings = run.finished(1).timings
        assert (timings.draft_n, timings.draft_n_accepted) == (proposed, accepted)

    @pytest.mark.parametrize(("stop", "kept"), [("d", 1), ("de", 2), ("fgh", 5), ("j", 7)])
    def test_a_stop_string_inside_a_block_ends_text_and_counts_there(
        self, stop: str, kept: int
    ) -> None:
        run = Lookup(self.REPLIES).add(request(1, PROMPT, 30, stop=stop)).finish()
        assert run.tokens(1) == self.REPLIES[PROMPT][: 2 + kept]
        assert run.text(1) == "bcdefghij".partition(stop)[0]
        timings = run.finished(1).timings
        assert (timings.draft_n, timings.draft_n_accepted, timings.draft_rounds) == (kept, kept, 1)

    def test_max_tokens_inside_the_match_narrows_the_round(self) -> None:
        run = Lookup(self.REPLIES).add(request(1, PROMPT, 6)).finish()
        assert [row.num_fed for plan in run.engine.plans for row in plan.rows] == [10, 1, 4]
        assert run.tokens(1) == (1, 2, 3, 4, 5, 6)
        assert run.reason(1) is FinishReason.LENGTH

    def test_a_row_cancelled_before_its_round_never_runs_it(self) -> None:
        run = Lookup(self.REPLIES).add(request(1, PROMPT, 30))
        run.tick(2)
        run.scheduler.cancel(1)
        run.finish()
        assert run.tokens(1) == (1, 2)

    def test_preemption_drops_the_drafter_and_starts_a_fresh_one(self) -> None:
        run = Lookup(self.REPLIES).add(request(1, PROMPT, 11))
        run.tick(3)
        assert run.scheduler.preempt(1)
        run.finish()
        assert len(run.diaries.drafters) == 2
        assert run.tokens(1) == self.REPLIES[PROMPT]
        assert run.finished(1).timings.draft_n_accepted == 7

    def test_preempted_with_a_lookahead_stored(self) -> None:
        run = Lookup(REPLIES).add(request(1, PROMPT, 20))
        while run.scheduler.lookahead is None:
            run.tick()
        assert run.scheduler.preempt(1)
        run.finish()
        assert run.tokens(1) == REPLIES[PROMPT]


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


LOW_YIELD = [("1 of 2", [1] * 20, 2), ("2 of 7", [2] * 20, 7)]
RULE = replace(GATED, min_tokens_per_round=3.5, resume_confirm_tokens=4)


class TestBreakEven:
    @pytest.mark.parametrize(("landings", "width"), [case[1:] for case in LOW_YIELD])
    def test_low_yield_for_ever_never_pauses_without_the_rule(
        self, landings: list[int], width: int
    ) -> None:
        run, _, reply = reply_run(landings, width, GATED)
        kinds = run.tick_kinds()
        assert "L" not in kinds[:-3]
        assert run.diaries.drafters[0].stats.drafted_rounds == 20
        assert run.tokens(1) == reply

    @pytest.mark.parametrize(("landings", "width"), [case[1:] for case in LOW_YIELD])
    def test_low_yield_for_ever_pauses_with_it_and_pipelines(
        self, landings: list[int], width: int
    ) -> None:
        run, _, reply = reply_run(landings, width, RULE)
        kinds = run.tick_kinds()
        drafter = run.diaries.drafters[0]
        assert drafter.stats.drafted_rounds <= 3
        assert drafter.stats.paused_rounds > 10
        first = kinds.index("L")
        # Prefill, a plain tick, the rounds; the tick after them is synchronous and primes.
        assert first == 2 + drafter.stats.drafted_rounds
        assert set(kinds[first:-1]) == {"L"}
        assert run.tokens(1) == reply

    @pytest.mark.parametrize("config", [GRADED, GATED])
    def test_a_copy_keeps_verifying_under_the_rule(self, config: PromptLookupConfig) -> None:
        text = tuple(range(200, 300))
        run = Lookup({text: text}, replace(config, min_tokens_per_round=3.5))
        run.add(request(1, text, 100)).finish()
        stats = run.diaries.drafters[0].stats
        assert stats.paused_rounds == 0
        assert stats.accepted == stats.proposed > 80
        assert len(run.engine.plans) < 20

    @pytest.mark.parametrize("config", [GRADED, GATED])
    def test_adaptive_off_ignores_the_rule(self, config: PromptLookupConfig) -> None:
        fixed = replace(config, adaptive=False)
        walks = []
        for each in (fixed, replace(fixed, min_tokens_per_round=3.5)):
            run, _, _ = reply_run([1] * 12, 7, each)
            walks.append((run.tick_kinds(), run.diary()))
        assert walks[0] == walks[1]
        assert walks[0][1].count("v") == 12

    def test_one_drafted_round_is_not_enough_evidence(self) -> None:
        run, _, _ = reply_run([1], 2, RULE)
        run.finish()
        assert run.diaries.drafters[0].num_pauses == 0
        run, _, _ = reply_run([1, 1], 2, RULE)
        run.finish()
        assert run.diaries.drafters[0].num_pauses == 1

    def test_graded_obeys_it_through_the_same_paused_state(self) -> None:
        run, _, _ = reply_run([1] * 12, 7, replace(GRADED, min_tokens_per_round=3.5))
        kinds = run.tick_kinds()
        stats = run.diaries.drafters[0].stats
        assert (stats.drafted_rounds, run.diaries.drafters[0].num_pauses) == (2, 1)
        assert set(kinds[4:-1]) == {"L"}

    def test_two_true_tokens_resume_the_command_line_and_not_the_server(self) -> None:
        """After the pause the prompt's next fragments come true for two tokens each."""
        landings = [0] + [2] * 8
        resumed = {}
        for tokens in (2, 4):
            config = replace(GATED, resume_confirm_tokens=tokens)
            run, _, reply = reply_run(landings, 7, config)
            run.finish()
            resumed[tokens] = run.diaries.drafters[0].stats.shadow_confirmations
            assert run.tokens(1) == reply
        assert resumed[2] > 0
        assert resumed[4] == 0

    def test_a_copy_stretch_resumes_a_row_that_the_rule_paused(self) -> None:
        prompt, reply = landing_text([1, 1], 2)
        tail = tuple(range(300, 340))
        run = Lookup({(*prompt, *tail): (*reply, *tail)}, RULE)
        run.add(request(1, (*prompt, *tail), len(reply) + 40)).finish()
        stats = run.diaries.drafters[0].stats
        assert stats.shadow_confirmations == 1
        assert stats.accepted > 20
        assert run.tokens(1) == (*reply, *tail)

    def test_two_rows_decide_each_for_itself(self) -> None:
        """The copying row keeps every tick synchronous for both; the other one is paused."""
        prompt, reply = landing_text([1] * 12, 2)
        text = tuple(range(200, 280))
        run = Lookup({prompt: reply, text: text}, RULE)
        run.add(request(1, prompt, len(reply)), request(2, text, 80))
        kinds = ""
        while not any(event.request_id == 2 for event in run.events if is_end(event)):
            run.tick()
            kinds += "." if run.scheduler.lookahead is None else "L"
        assert set(kinds) == {"."}
        low, copy = (drafter.stats for drafter in run.diaries.drafters)
        assert (low.drafted_rounds, copy.paused_rounds) == (2, 0)
        assert low.paused_rounds > 5
        run.finish()
        assert (run.tokens(1), run.tokens(2)) == (reply, text)


class TestOverlap:
    def test_ticks_between_a_round_and_the_next_prime_are_counted(self) -> None:
        """One round and three synchronous ticks, on top of eight rounds of two."""
        run = Lookup(REPLIES).add(request(1, PROMPT, 10)).finish()
        assert run.lookup.synchronous_ticks_per_round == (8 * 2 + 3) / 9

    def test_ticks_that_no_round_caused_are_not(self) -> None:
        run = Lookup(REPLIES).add(request(1, PLAIN, 10)).finish()
        assert run.lookup.synchronous_ticks_per_round == 2.0

    def test_prices_follow_the_estimate_and_the_context(self) -> None:
        asked: list[tuple[int, float]] = []

        def prices(context: int, ticks: float) -> tuple[float, ...]:
            asked.append((context, ticks))
            return (0.0,) * 9

        lookup = PromptLookup(Diaries(GRADED), round_costs=prices)
        run = Run(ScriptedEngine(1, 64, replies=REPLIES), None, lookup)
        run.add(request(1, PROMPT, 15)).finish()
        assert asked == [(15, 2.0), (25, (8 * 2 + 3) / 9)]


def test_two_rows_speculate_side_by_side_and_equal_alone() -> None:
    requests = [request(1, PROMPT, 20), request(2, (1, 2, 3) * 5, 20)]
    run = Lookup(REPLIES).add(*requests).finish()
    for one in requests:
        assert run.tokens(one.request_id) == alone(run.engine, one)
