"""What the scheduler's tests share: short ways to make requests and to run them to their end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from support.fakes import ScriptedEngine, hashed_token
from surefoot.config import SchedulerConfig
from surefoot.core.events import Event, Failed, Finished, FinishReason, TokensEmitted
from surefoot.core.request import PlainText, Request, SamplingParams
from surefoot.scheduling.proposing import PromptLookup
from surefoot.scheduling.scheduler import Scheduler
from surefoot.scheduling.storage import RowStorage

GREEDY = SamplingParams(temperature=0.0)
SEEDED = SamplingParams(temperature=0.8, seed=11)
PENALIZED = SamplingParams(temperature=0.8, seed=5, repetition_penalty=1.1)

MAX_TICKS = 20_000


@dataclass
class LetterText:
    """Token t becomes the letter `a + t % 26`; stops at `stop_string`, which is cut off. Holds
    text back while it may be the start of `stop_string`."""

    stop_string: str = ""
    stopped: bool = False
    _held: str = ""

    def push(self, token_id: int) -> str:
        self._held += chr(ord("a") + token_id % 26)
        if self.stop_string and self._held.endswith(self.stop_string):
            self.stopped = True
            text, self._held = self._held.removesuffix(self.stop_string), ""
            return text
        keep = next(
            (
                n
                for n in range(len(self.stop_string), 0, -1)
                if self._held.endswith(self.stop_string[:n])
            ),
            0,
        )
        safe = len(self._held) - keep
        text, self._held = self._held[:safe], self._held[safe:]
        return text

    def finish(self) -> str:
        text, self._held = self._held, ""
        return text


def request(
    request_id: int,
    prompt_ids: Sequence[int],
    max_tokens: int = 8,
    sampling: SamplingParams = GREEDY,
    *,
    end_ids: Iterable[int] = (),
    stop: str | None = None,
    speculation: bool = True,
    priority: int = 0,
    cache_salt: str = "",
) -> Request:
    return Request(
        request_id,
        tuple(prompt_ids),
        max_tokens,
        sampling,
        PlainText() if stop is None else LetterText(stop),
        frozenset(end_ids),
        speculation,
        priority,
        cache_salt,
    )


class Run:
    """A scheduler over a scripted engine, with every event it ever returned. `check()` runs after
    each tick, and `most_resident` is the most memory, in blocks, that was in use after one."""

    def __init__(
        self,
        engine: ScriptedEngine,
        config: SchedulerConfig | None = None,
        lookup: PromptLookup | None = None,
        storage: RowStorage | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.engine = engine
        self.scheduler = Scheduler(
            engine,
            config or SchedulerConfig(max_rows=engine.num_windows),
            lookup,
            clock,
            storage=storage,
        )
        self.events: list[Event] = []
        self.most_resident = 0

    def add(self, *requests: Request) -> Run:
        for each in requests:
            self.scheduler.add(each)
        return self

    def tick(self, times: int = 1) -> list[Event]:
        """Tick so often; the events of the last tick."""
        events: list[Event] = []
        for _ in range(times):
            events = self.scheduler.tick()
            self.scheduler.check()
            self.most_resident = max(self.most_resident, self.engine.num_resident)
            self.events += events
        return events

    def finish(self) -> Run:
        for _ in range(MAX_TICKS):
            if not self.scheduler.has_work:
                return self
            self.tick()
        raise AssertionError("the scheduler never came to an end")

    def tokens(self, request_id: int) -> tuple[int, ...]:
        return tuple(
            token
            for event in self.events
            if isinstance(event, TokensEmitted) and event.request_id == request_id
            for token in event.token_ids
        )

    def end(self, request_id: int) -> Finished | Failed:
        """The request's one terminal event, which is also its last."""
        mine = [event for event in self.events if event.request_id == request_id]
        ends = [event for event in mine if isinstance(event, Finished | Failed)]
        assert len(ends) == 1, ends
        assert mine[-1] is ends[0], mine
        return ends[0]

    def finished(self, request_id: int) -> Finished:
        end = self.end(request_id)
        assert isinstance(end, Finished), end
        assert end.completion_tokens == len(self.tokens(request_id))
        return end

    def reason(self, request_id: int) -> FinishReason:
        return self.finished(request_id).reason

    def text(self, request_id: int) -> str:
        pieces = [
            event.text
            for event in self.events
            if event.request_id == request_id and isinstance(event, TokensEmitted | Finished)
        ]
        return "".join(pieces)


def alone(engine: ScriptedEngine, one: Request) -> tuple[int, ...]:
    """What a request's reply is by definition: `max_tokens` tokens, each after all before it, cut
    after an end token. No scheduler is involved."""
    sequence = list(one.prompt_ids)
    limit = min(one.max_tokens, engine.capacity + 1 - len(sequence))
    for _ in range(limit):
        sequence.append(engine.next_token(sequence, one.sampling))
        if sequence[-1] in one.end_ids:
            break
    return tuple(sequence[len(one.prompt_ids) :])


__all__ = [
    "GREEDY",
    "PENALIZED",
    "SEEDED",
    "LetterText",
    "Run",
    "alone",
    "hashed_token",
    "request",
]


def drive(
    run: Run,
    operations: Iterable[tuple[str, int]],
    made_request: Callable[[int, int], Request],
) -> list[Request]:
    """Any operations (`tick`, `add`, `cancel`, `preempt`) on a scheduler that checks itself after
    each; then every request to its end. `made_request(id, salt)` makes those that are added."""
    requests: list[Request] = []
    for name, number in operations:
        if name == "tick":
            run.tick(number)
        elif name == "add":
            requests.append(made_request(len(requests), number))
            run.add(requests[-1])
        elif name == "cancel":
            run.scheduler.cancel(number)
        else:
            run.scheduler.preempt(number)
        run.scheduler.check()
    run.finish()
    return requests


def whole_replies(
    run: Run, engine: ScriptedEngine, requests: Iterable[Request]
) -> list[tuple[Request, Finished]]:
    """Every reply is what its request gets alone, or, failed or cancelled, a beginning of that.
    Those that ran to their end, and how."""
    whole: list[tuple[Request, Finished]] = []
    for one in requests:
        expected, got = alone(engine, one), run.tokens(one.request_id)
        end = run.end(one.request_id)
        if isinstance(end, Failed) or end.reason is FinishReason.CANCELLED:
            assert got == expected[: len(got)]
            continue
        assert got == expected
        whole.append((one, end))
    return whole
