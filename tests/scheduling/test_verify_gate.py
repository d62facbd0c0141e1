"""Who is asked (I5), and replies that end inside a verified block."""

from __future__ import annotations

from typing import ClassVar

import pytest

from support.fakes import ScriptedEngine
from support.lookup_runs import PLAIN, PROMPT, REPLIES, Lookup
from support.scheduler_runs import Run, request
from surefoot.core.events import FinishReason
from surefoot.core.request import Request, SamplingParams
from surefoot.scheduling.proposing import PromptLookup
from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.governed.drafter import PromptLookupDrafter


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


@pytest.mark.parametrize(("limit", "rounds"), [(None, True), (30, True), (8, False)])
def test_a_row_longer_than_its_storage_allows_is_not_asked(limit: int | None, rounds: bool) -> None:
    prompt = (1, 2, 3, 4, 1, 2, 3, 4, 1)
    engine = ScriptedEngine(1, 64, vocab=50, replies={prompt: (2, 3, 4, 1, 2, 3, 4, 1)})
    config = PromptLookupConfig()
    lookup = PromptLookup(lambda end_ids: PromptLookupDrafter(config, end_ids), context_limit=limit)
    run = Run(engine, None, lookup).add(request(1, prompt, 8)).finish()
    assert (run.finished(1).timings.draft_rounds > 0) == rounds
