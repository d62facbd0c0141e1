"""A job's rows to a reply, whole or as chunks; what the two routes share.

The routes differ in the form of a choice, which a `ChoiceFormat` gives. Here are the envelope,
the order of chunks, usage and timings. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import surefoot
from surefoot.core.events import Failed, Finished, TokensEmitted
from surefoot.core.request import TokenLogprobs
from surefoot.core.timings import Timings
from surefoot.server.gate import Job
from surefoot.server.limits import ReplyLimits
from surefoot.server.rows import RowGroup

Json = dict[str, object]

FINGERPRINT = f"surefoot-{surefoot.__version__}"


class ChoiceFormat(Protocol):
    """The form of one route's choices. `logprobs` are parallel to `token_ids`, or None."""

    object_name: str
    chunk_name: str

    def opening(self, index: int) -> Json | None:
        """The choice of a stream's first chunk (role, echo), before any token."""
        ...

    def delta(
        self,
        index: int,
        text: str,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] | None,
    ) -> Json: ...

    def ending(self, index: int, reason: str) -> Json: ...

    def whole(
        self,
        index: int,
        text: str,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] | None,
        reason: str,
    ) -> Json: ...


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every chunk of one reply repeats."""

    id: str
    created: int
    model: str

    def wrap(self, object_name: str, choices: Sequence[Json]) -> Json:
        return {
            "id": self.id,
            "object": object_name,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": list(choices),
        }


@dataclass
class Tally:
    """Usage and timings over the rows that finished. Copies of a prompt (`n > 1`) count it once;
    times add up over rows, so rates are those of one row on average."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    timings: Timings | None = None

    def add(self, finished: Finished, first_copy: bool) -> None:
        if first_copy:
            self.prompt_tokens += finished.prompt_tokens
            self.cached_tokens += finished.timings.cache_n
        self.completion_tokens += finished.completion_tokens
        self.timings = add_timings(self.timings, finished.timings)

    def usage(self) -> Json:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


def add_timings(one: Timings | None, other: Timings) -> Timings:
    if one is None:
        return other
    return replace(
        one,
        prompt_n=one.prompt_n + other.prompt_n,
        prompt_ms=one.prompt_ms + other.prompt_ms,
        predicted_n=one.predicted_n + other.predicted_n,
        predicted_ms=one.predicted_ms + other.predicted_ms,
        cache_n=one.cache_n + other.cache_n,
        draft_n=one.draft_n + other.draft_n,
        draft_n_accepted=one.draft_n_accepted + other.draft_n_accepted,
        draft_rounds=one.draft_rounds + other.draft_rounds,
    )


@dataclass
class Gathered:
    """One choice of a reply that is not streamed, as it grows."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    reason: str = ""

    def take(self, event: TokensEmitted | Finished) -> None:
        self.texts.append(event.text)
        if isinstance(event, Finished):
            self.reason = str(event.reason)
        else:
            self.token_ids += event.token_ids
            self.logprobs += event.logprobs or ()


async def whole_reply(
    job: Job, rows: RowGroup, form: ChoiceFormat, envelope: Envelope, limits: ReplyLimits
) -> Json | None:
    """The reply as one object; None if the client left. Raises what a row failed with."""
    tally = Tally()
    gathered = [Gathered() for _ in job.rows]
    async for item in rows.events(limits):
        if item is None:
            continue
        assert not isinstance(item.event, Failed), "the row group raises failures"
        gathered[item.index].take(item.event)
        if isinstance(item.event, Finished):
            tally.add(item.event, is_first_copy(job, item.index))
    if not all(choice.reason for choice in gathered):
        return None
    choices = [
        form.whole(
            index,
            job.echo[index] + "".join(choice.texts),
            choice.token_ids,
            None if job.num_logprobs is None else choice.logprobs,
            choice.reason,
        )
        for index, choice in enumerate(gathered)
    ]
    reply = envelope.wrap(form.object_name, choices) | {"usage": tally.usage()}
    if tally.timings is not None:
        reply["timings"] = tally.timings.as_dict()
    return reply


async def reply_chunks(
    job: Job, rows: RowGroup, form: ChoiceFormat, envelope: Envelope, limits: ReplyLimits
) -> AsyncIterator[Json | None]:
    """The reply as chunks; None asks for a sign of life. Ends early if the client left. Raises
    what a row failed with."""
    tally = Tally()
    extra: Json = {"usage": None} if job.include_usage else {}

    def chunk(choice: Json) -> Json:
        return envelope.wrap(form.chunk_name, [choice]) | extra

    for index in range(len(job.rows)):
        opening = form.opening(index)
        if opening is not None:
            yield chunk(opening)
    async for item in rows.events(limits):
        if item is None:
            yield None
            continue
        index, event = item.index, item.event
        assert not isinstance(event, Failed), "the row group raises failures"
        if isinstance(event, TokensEmitted):
            ids, logprobs, so_far = event.token_ids, event.logprobs, event.timings
        else:
            so_far = event.timings if job.rows[index].timings_per_token else None
            ids, logprobs = (), None
        if event.text or logprobs:
            delta = chunk(form.delta(index, event.text, ids, logprobs))
            if so_far is not None:
                delta["timings"] = so_far.as_dict()
            yield delta
        if isinstance(event, Finished):
            tally.add(event, is_first_copy(job, index))
            timings = {"timings": event.timings.as_dict()}
            yield chunk(form.ending(index, str(event.reason))) | timings
    if job.include_usage:
        yield envelope.wrap(form.chunk_name, []) | {"usage": tally.usage()}


def is_first_copy(job: Job, index: int) -> bool:
    return job.rows[index].sampling.choice == 0
