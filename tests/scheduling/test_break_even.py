"""The break-even rule in the scheduler, and the live count that its prices need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fakes import ScriptedEngine
from support.lookup_runs import GATED, GRADED, PLAIN, PROMPT, REPLIES, Lookup, reply_run
from support.lookup_texts import Diaries, landing_text
from support.scheduler_runs import Run, request
from surefoot.core.events import Event, Failed, Finished
from surefoot.scheduling.proposing import PromptLookup
from surefoot.speculation.config import PromptLookupConfig


def is_end(event: Event) -> bool:
    return isinstance(event, Finished | Failed)


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
        asked: list[tuple[int, float, bool]] = []

        def prices(context: int, ticks: float, sampled: bool) -> tuple[float, ...]:
            asked.append((context, ticks, sampled))
            return (0.0,) * 9

        lookup = PromptLookup(Diaries(GRADED), round_costs=prices)
        run = Run(ScriptedEngine(1, 64, replies=REPLIES), None, lookup)
        run.add(request(1, PROMPT, 15)).finish()
        assert asked == [(15, 2.0, False), (25, (8 * 2 + 3) / 9, False)]
