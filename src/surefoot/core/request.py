"""A request that passed the gate: one prompt, one row, one reply.

A body with `n > 1` or several prompts becomes several requests, told apart by `choice`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn (order: penalties and bias, temperature, top-k, top-p, min-p, then a
    Gumbel-max draw keyed by `(seed, choice, position, token)`).

    `seed` is always a number here; a request without one was given a random one at the gate.
    `logprobs`: None when not asked, else how many alternatives to report beside the drawn token
    (0 to 20). Log probabilities are those of the raw logits (temperature 1, no penalties).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    choice: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None

    @property
    def greedy(self) -> bool:
        """The highest logit wins: no draw is made."""
        return self.temperature == 0.0 or self.top_k == 1

    @property
    def has_penalties(self) -> bool:
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @property
    def needs_logits(self) -> bool:
        """False: the graph's own ArgMax answers, and the logits never leave it."""
        return (
            not self.greedy
            or self.has_penalties
            or bool(self.logit_bias)
            or self.logprobs is not None
        )


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural-log probabilities at one position: the drawn token's, and the best alternatives
    as `(token_id, logprob)`, best first."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class TextStepper(Protocol):
    """Turns a row's tokens into text that is safe to send, one token at a time.

    Pure state: it holds back bytes that are not yet a character and text that may be the start
    of a stop string.
    """

    def push(self, token_id: int) -> str:
        """The text that became safe to send with this token (may be empty)."""
        ...

    @property
    def stopped(self) -> bool:
        """A stop string is complete: the row ends with this token, its text already cut."""
        ...

    def finish(self) -> str:
        """The row ended without a stop string: whatever was held back."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """`max_tokens` is already clamped to the room left in the context. `end_ids` end the row;
    empty for `ignore_eos`. The end token counts as a completion token and gives no text.
    `speculation` False decodes plainly. `timings_per_token`: every event says what the row took so
    far."""

    request_id: int
    prompt_ids: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    text: TextStepper
    end_ids: frozenset[int] = frozenset()
    speculation: bool = True
    priority: int = 0
    cache_salt: str = ""
    timings_per_token: bool = False

    def __post_init__(self) -> None:
        assert self.prompt_ids, "an empty prompt never passes the gate"
        assert self.max_tokens >= 1, self.max_tokens


@dataclass
class PlainText:
    """A stepper that collects token ids and makes no text: for tests and traces."""

    token_ids: list[int] = field(default_factory=list)
    stopped: bool = False

    def push(self, token_id: int) -> str:
        self.token_ids.append(token_id)
        return ""

    def finish(self) -> str:
        return ""


def total_length(prompt_ids: Sequence[int], output_ids: Sequence[int]) -> int:
    """Tokens of a row's whole sequence so far."""
    return len(prompt_ids) + len(output_ids)
