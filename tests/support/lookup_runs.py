"""Runs of a scheduler with prompt lookup, and the replies that its tests script."""

from __future__ import annotations

from support.fakes import ScriptedEngine
from support.lookup_texts import Diaries, landing_text
from support.scheduler_runs import Run, request
from surefoot.config import SchedulerConfig
from surefoot.scheduling.proposing import PromptLookup
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


def reply_run(
    landings: list[int], width: int, config: PromptLookupConfig
) -> tuple[Lookup, tuple[int, ...], tuple[int, ...]]:
    prompt, reply = landing_text(landings, width)
    whole = SchedulerConfig(max_rows=1, chunk_busy=512, chunk_alone=512)  # one tick of prefill
    run = Lookup({prompt: reply}, config, num_windows=1, scheduling=whole)
    run.add(request(1, prompt, len(reply)))
    return run, prompt, reply
