"""Speculated decoding held against plain decoding, token for token.

Owns the comparison and the proof that a parting is a near-tie. Must not know how a reply is shown
or what a difference is worth.

The first token that differs parts the two replies for good, so the comparison starts anew there:
the rest is speculated again behind the plain reply's own tokens. Draws are keyed by position, so a
sampled reply goes on with the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot.app.offline import Reply
from surefoot.core.events import Failed, TokensEmitted
from surefoot.core.request import PlainText, Request, SamplingParams
from surefoot.core.step import RowSampling
from surefoot.engine.sampling import draw_token
from surefoot.runtime.mailbox import Mailbox

NEAR_TIE = 0.7
"""Logits nearer than this may change places when a forward's shape changes: the widest gap at which
8-bit activations flipped an argmax against float arithmetic (`docs/design.md`)."""

GAP_STEP = 0.01
"""To how many logits a gap is measured."""

Logits = NDArray[np.float32]


class Runner(Protocol):
    """What runs a request: `cli.assembly.Stack`."""

    @property
    def mailbox(self) -> Mailbox: ...


@dataclass(frozen=True, slots=True)
class Parting:
    """After `index` equal tokens the plain reply says `plain` and the speculated one `speculated`
    (None: that reply has ended). `gap`: `measured_gap` of the two; None: no near-tie."""

    index: int
    plain: int | None
    speculated: int | None
    gap: float | None


@dataclass(frozen=True, slots=True)
class Parity:
    """`num_tokens` of the plain reply were compared."""

    num_tokens: int
    partings: tuple[Parting, ...]

    @property
    def identical(self) -> bool:
        return not self.partings

    @property
    def proven(self) -> bool:
        """Every parting is a near-tie."""
        return all(parting.gap is not None for parting in self.partings)

    @property
    def rate(self) -> float:
        """Partings per compared token."""
        return len(self.partings) / self.num_tokens

    def __str__(self) -> str:
        """One line for a terminal."""
        if self.identical:
            return f"parity: {self.num_tokens} tokens, identical"
        partings = ", ".join(_describe(parting) for parting in self.partings)
        return (
            f"parity: {len(self.partings)} of {self.num_tokens} tokens part "
            f"({100 * self.rate:.2f} %): {partings}"
        )


def _describe(parting: Parting) -> str:
    where = f"token {parting.index + 1}"
    if parting.gap is not None:
        return f"{where} at a gap of {parting.gap:.2f}"
    return f"{where} with no near-tie ({parting.plain} against {parting.speculated})"


def compare(runner: Runner, plain: Reply, speculated: Reply, vocab_size: int) -> Parity:
    """`plain` and `speculated` answer the same request, without penalties, by the same `runner`,
    which speculates. Raises what a failing row failed with."""
    prompt, wanted = plain.request.prompt_ids, plain.token_ids
    partings: list[Parting] = []
    start, tokens = 0, speculated.token_ids
    while (index := _first_difference(wanted[start:], tokens)) is not None:
        at = start + index
        partings.append(_parting(runner, plain, at, _at(tokens, index), vocab_size))
        start = at + 1
        if start >= len(wanted):
            break
        rest = _next_request(runner, plain.request, (*prompt, *wanted[:start]), len(wanted) - start)
        tokens = tuple(token for event in _events(runner, rest) for token in event.token_ids)
    return Parity(len(wanted), tuple(partings))


def _parting(
    runner: Runner, plain: Reply, index: int, other: int | None, vocab_size: int
) -> Parting:
    token = _at(plain.token_ids, index)
    if token is None or other is None:
        return Parting(index, token, other, None)
    prefix = (*plain.request.prompt_ids, *plain.token_ids[:index])
    params = plain.request.sampling
    logits = _logits_after(runner, plain.request, prefix, vocab_size)
    return Parting(index, token, other, measured_gap(logits, params, len(prefix), token, other))


def measured_gap(
    logits: Logits, params: SamplingParams, position: int, one: int, other: int
) -> float | None:
    """How far the two are from being drawn, in logits; None: `NEAR_TIE` or more. The engine's own
    draw decides. For a greedy row this is the logits' gap, for a sampled one the gap with the noise
    on it, or what brings a token back that a filter cut. `logits` `[vocab]`."""
    needs = [_need(logits, params, position, token) for token in (one, other)]
    found = [need for need in needs if need is not None]
    return max(found) if len(found) == len(needs) else None


def _need(logits: Logits, params: SamplingParams, position: int, token: int) -> float | None:
    """The least that is to be added to the token's logit for it to be drawn: 0 for the one that
    these very logits draw."""
    for step in range(round(NEAR_TIE / GAP_STEP)):
        raised = logits.copy()
        raised[token] += np.float32(step * GAP_STEP)
        if draw_token(raised, RowSampling(params), (), position)[0] == token:
            return step * GAP_STEP
    return None


def _logits_after(
    runner: Runner, request: Request, tokens: tuple[int, ...], vocab_size: int
) -> Logits:
    """The logits behind `tokens` less their log-sum, `[vocab]`: read once more, as a prompt."""
    asking = replace(request.sampling, logprobs=vocab_size)
    probe = replace(_next_request(runner, request, tokens, 1), sampling=asking, speculation=False)
    (event,) = _events(runner, probe)
    assert event.logprobs is not None, "log probabilities were asked for"
    logits = np.empty(vocab_size, dtype=np.float32)
    for token, logprob in event.logprobs[0].top:
        logits[token] = logprob
    return logits


def _next_request(
    runner: Runner, request: Request, prompt_ids: tuple[int, ...], max_tokens: int
) -> Request:
    return replace(
        request,
        request_id=runner.mailbox.new_request_id(),
        prompt_ids=prompt_ids,
        max_tokens=max_tokens,
        text=PlainText(),
    )


def _events(runner: Runner, request: Request) -> list[TokensEmitted]:
    emitted: list[TokensEmitted] = []
    for event in runner.mailbox.submit_sync(request):
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, TokensEmitted):
            emitted.append(event)
    return emitted


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    for index in range(max(len(one), len(other))):
        if _at(one, index) != _at(other, index):
            return index
    return None


def _at(tokens: Sequence[int], index: int) -> int | None:
    return tokens[index] if index < len(tokens) else None
