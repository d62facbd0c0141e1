"""What a row tells its client.

Every accepted request ends in exactly one `Finished` or `Failed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from surefoot.core.request import TokenLogprobs
from surefoot.core.timings import Timings
from surefoot.errors import SurefootError


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class TokensEmitted:
    """Tokens kept in one tick and the text that became safe to send (may be empty).
    `logprobs` is parallel to `token_ids`, `timings` are the row's so far; both when asked for."""

    request_id: int
    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprobs, ...] | None = None
    timings: Timings | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The row ended. `text` is what the stepper still held back."""

    request_id: int
    reason: FinishReason
    text: str
    prompt_tokens: int
    completion_tokens: int
    timings: Timings


@dataclass(frozen=True, slots=True)
class Failed:
    """The row ended by an error, before or after its first token."""

    request_id: int
    error: SurefootError


Event = TokensEmitted | Finished | Failed
