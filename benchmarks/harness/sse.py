"""A streamed chat reply, from lines to one record. No network, no clock: times are handed in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

DONE = "[DONE]"


class StreamError(Exception):
    """The stream carried an error, was cut short, or held no token."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Counts of one reply: proposed and accepted tokens, verify rounds (0 where not told)."""

    proposed: int = 0
    accepted: int = 0
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """Where a reply was when a piece of it was sent: tokens and verify rounds so far, and seconds
    since its first token, by the server's clock."""

    tokens: int
    seconds: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Reply:
    """One finished reply. Times in seconds; `first_s` and `last_s` count from the request.

    `decode_s` and `prompt_s` are the server's own figures (None where it gives none); `gaps_s`
    are the times between successive pieces of text, as the client saw them; `steps` are told where
    `timings_per_token` was asked for.
    """

    text: str
    finish_reason: str | None
    prompt_tokens: int
    tokens: int
    cached_tokens: int
    prompt_s: float | None
    decode_s: float | None
    first_s: float
    last_s: float
    gaps_s: tuple[float, ...]
    draft: Draft
    steps: tuple[Step, ...] = ()

    @property
    def client_decode_s(self) -> float:
        """From the first piece of text to the last; it holds `tokens - 1` steps or fewer."""
        return self.last_s - self.first_s


def data_of(lines: Iterable[bytes]) -> Iterator[str]:
    """The data of each event of a server-sent stream; comments and other fields are dropped."""
    held: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8").rstrip("\r\n")
        if not line:
            if held:
                yield "\n".join(held)
                held.clear()
        elif line.startswith("data:"):
            held.append(line[5:].removeprefix(" "))
    if held:
        yield "\n".join(held)


@dataclass(slots=True)
class ReplyBuilder:
    """Takes the events of one stream in order, each with its time since the request."""

    pieces: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    finish_reason: str | None = None
    timings: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    done: bool = False

    def add(self, at_s: float, data: str) -> None:
        """Raises `StreamError` for an error event."""
        if data == DONE:
            self.done = True
            return
        chunk = json.loads(data)
        if "error" in chunk:
            raise StreamError(str(chunk["error"]))
        for choice in chunk.get("choices", ()):
            text = choice.get("delta", {}).get("content") or ""
            if text:
                self.pieces.append(text)
                self.times.append(at_s)
                self._note_step(chunk.get("timings") or {})
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.timings |= chunk.get("timings") or {}
        self.usage |= chunk.get("usage") or {}

    def _note_step(self, timings: dict[str, Any]) -> None:
        if "predicted_n" in timings and "predicted_ms" in timings:
            tokens, rounds = int(timings["predicted_n"]), int(timings.get("draft_rounds", 0))
            self.steps.append(Step(tokens, timings["predicted_ms"] / 1000.0, rounds))

    def reply(self) -> Reply:
        """Raises `StreamError` unless the stream ended as it should and held text."""
        if not self.done or not self.times:
            raise StreamError("the stream ended early" if not self.done else "an empty reply")
        timings, usage = self.timings, self.usage
        tokens = timings.get("predicted_n") or usage.get("completion_tokens") or len(self.pieces)
        told = usage.get("prompt_tokens", timings.get("prompt_n", 0))
        return Reply(
            text="".join(self.pieces),
            finish_reason=self.finish_reason,
            prompt_tokens=int(told),
            tokens=int(tokens),
            cached_tokens=int(timings.get("cache_n", 0)),
            prompt_s=seconds(timings.get("prompt_ms")),
            decode_s=seconds(timings.get("predicted_ms")),
            first_s=self.times[0],
            last_s=self.times[-1],
            gaps_s=tuple(b - a for a, b in zip(self.times, self.times[1:], strict=False)),
            draft=Draft(
                int(timings.get("draft_n", 0)),
                int(timings.get("draft_n_accepted", 0)),
                int(timings.get("draft_rounds", 0)),
            ),
            steps=tuple(self.steps),
        )


def seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000.0
