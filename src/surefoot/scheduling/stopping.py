"""Where a reply ends: an end token, a stop string, `max_tokens`, the context.

Steps the row's text one token at a time, so a stop inside a verified block cuts it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.core.events import FinishReason
from surefoot.core.request import Request


@dataclass(frozen=True, slots=True)
class Kept:
    """The first `num_tokens` of a step's tokens belong to the reply; `text` became safe to send;
    `reason` is set if the reply ends with the last of them, `held_back` is its remaining text."""

    num_tokens: int
    text: str
    reason: FinishReason | None = None
    held_back: str = ""


def keep_until_stop(request: Request, tokens: Sequence[int], room: int) -> Kept:
    """How much of `tokens` the reply keeps. `room` is what it may still hold (`Row.room`).

    An end token is kept and counted and gives no text. A stop string's text is cut by the
    request's own stepper. Both beat the limit when they fall on the same token.
    """
    assert 1 <= len(tokens) <= room, (len(tokens), room)
    pieces: list[str] = []
    for index, token in enumerate(tokens):
        if token in request.end_ids:
            held_back = request.text.finish()
            return Kept(index + 1, "".join(pieces), FinishReason.STOP, held_back)
        pieces.append(request.text.push(token))
        if request.text.stopped:
            return Kept(index + 1, "".join(pieces), FinishReason.STOP)
    if len(tokens) == room:
        held_back = request.text.finish()
        return Kept(len(tokens), "".join(pieces), FinishReason.LENGTH, held_back)
    return Kept(len(tokens), "".join(pieces))
