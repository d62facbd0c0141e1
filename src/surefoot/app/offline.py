"""One reply in the terminal: a request of one row, its text as it comes, its figures after it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from surefoot.core.events import Failed, Finished, FinishReason, TokensEmitted
from surefoot.core.request import Request, SamplingParams, TextStepper
from surefoot.core.timings import Timings
from surefoot.errors import ContextLengthError
from surefoot.runtime.mailbox import Mailbox
from surefoot.speculation.replay.traces import Trace

Write = Callable[[str], object]


class Runner(Protocol):
    """What runs a request: `cli.assembly.Stack`."""

    @property
    def mailbox(self) -> Mailbox: ...

    @property
    def capacity(self) -> int:
        """Tokens of prompt and reply together."""
        ...

    @property
    def end_ids(self) -> frozenset[int]: ...

    def make_text(self, stop: Sequence[str]) -> TextStepper: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """What was asked and what came back."""

    request: Request
    token_ids: tuple[int, ...]
    text: str
    reason: FinishReason
    timings: Timings


def sampling(temperature: float, top_k: int, top_p: float, seed: int | None) -> SamplingParams:
    """`seed` None draws one."""
    return SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=secrets.randbits(63) if seed is None else seed,
    )


def reply_to(
    runner: Runner,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    *,
    max_tokens: int | None,
    stop: Sequence[str] = (),
    write: Write,
    speculation: bool = True,
) -> Reply:
    """Run one request to its end, writing text as it becomes safe to show.

    `max_tokens` None: as many as the context holds. `speculation` False decodes plainly. A Ctrl-C
    ends the reply after the step under way, with reason CANCELLED. Raises `ContextLengthError` for
    a prompt without room for a reply, and what a failing row failed with.
    """
    room = runner.capacity - len(prompt_ids)
    if room < 1:
        raise ContextLengthError(
            f"the prompt holds {len(prompt_ids)} tokens, the context {runner.capacity}"
        )
    request = Request(
        request_id=runner.mailbox.new_request_id(),
        prompt_ids=tuple(prompt_ids),
        max_tokens=min(max_tokens or room, room),
        sampling=params,
        text=runner.make_text(stop),
        end_ids=runner.end_ids,
        speculation=speculation,
    )
    return _read(runner.mailbox, request, write)


@dataclass
class _Gathered:
    """What has come of a reply so far."""

    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    end: Finished | None = None

    def take(self, event: TokensEmitted | Finished) -> None:
        self.texts.append(event.text)
        if isinstance(event, TokensEmitted):
            self.token_ids.extend(event.token_ids)
        else:
            self.end = event


def _read(mailbox: Mailbox, request: Request, write: Write) -> Reply:
    stream = mailbox.submit_sync(request)
    gathered = _Gathered()
    while gathered.end is None:
        try:
            event = next(stream)
            if isinstance(event, Failed):
                raise event.error
            gathered.take(event)
            write(event.text)
        except KeyboardInterrupt:
            stream.cancel()
        except StopIteration:  # a Ctrl-C came between the end and our taking it
            raise KeyboardInterrupt from None
    end = gathered.end
    text = "".join(gathered.texts)
    return Reply(request, tuple(gathered.token_ids), text, end.reason, end.timings)


def speed_line(reply: Reply) -> str:
    """Tokens and tokens per second, of the prompt (what was known already is not read again) and
    of the reply."""
    timings = reply.timings.as_dict()
    cached = reply.timings.cache_n
    known = f" ({cached} known)" if cached else ""
    return (
        f"prompt: {reply.timings.prompt_n + cached} tokens{known}, "
        f"{timings['prompt_per_second']:.1f} tokens/s; "
        f"reply: {timings['predicted_n']} tokens, {timings['predicted_per_second']:.1f} tokens/s "
        f"({reply.reason})"
    )


def trace_of(reply: Reply, capacity: int) -> Trace:
    """The reply as `surefoot replay` reads it."""
    return Trace(
        prompt=reply.request.prompt_ids,
        emitted=reply.token_ids,
        max_tokens=reply.request.max_tokens,
        end_ids=reply.request.end_ids,
        capacity=capacity,
    )
