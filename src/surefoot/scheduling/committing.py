"""Moves one row by one step's result: its KV length, tokens, text, clock and draft counts."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.core.events import FinishReason, TokensEmitted
from surefoot.core.step import RowPlan, RowResult
from surefoot.scheduling.row import Row
from surefoot.scheduling.stopping import keep_until_stop
from surefoot.speculation.acceptance import accepted_prefix


@dataclass(frozen=True, slots=True)
class Committed:
    """`event` holds the kept tokens, `accepted` of them from the draft. `reason` is set if the
    reply ends here, with `held_back` as the text still unsent."""

    event: TokensEmitted
    accepted: int
    reason: FinishReason | None
    held_back: str

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.event.token_ids


def commit_result(
    row: Row, plan: RowPlan, result: RowResult, capacity: int, now: float
) -> Committed | None:
    """Keep the longest prefix of the draft that the target agrees with, and one token more; cut
    it at a stop or limit. None: a prompt chunk that samples nothing.

    The KV keeps what was fed of the kept tokens; the next plan's `start` unwinds the rest. Fed
    `[c, d0, d1, d2]` at 10 and sampled `[d0, d1, x, ...]`: emits `d0 d1 x`, and the KV holds 13
    positions, all tokens but x.
    """
    if plan.sample_from == plan.num_fed:
        row.num_computed = plan.end
        return None
    draft = draft_of(plan)
    accepted = accepted_prefix(draft, result.tokens)
    sampled = result.tokens[: accepted + 1]
    kept = keep_until_stop(row.request, sampled, row.room(capacity))
    tokens = sampled[: kept.num_tokens]
    accepted = min(accepted, len(tokens))
    row.tokens.extend(tokens)
    row.num_computed = plan.end - len(draft) + accepted
    row.clock.token_at(now)
    if draft:
        cut = len(tokens) < len(sampled)
        row.drafts.add(len(tokens) if cut else len(draft), accepted)
    logprobs = None if result.logprobs is None else result.logprobs[: len(tokens)]
    timings = row.timings(now) if row.request.timings_per_token else None
    event = TokensEmitted(row.row_id, tokens, kept.text, logprobs, timings)
    return Committed(event, accepted, kept.reason, kept.held_back)


def draft_of(plan: RowPlan) -> tuple[int, ...]:
    """The fed tokens after the first sampled position: what a verify round proposes."""
    return plan.feed[plan.sample_from + 1 :] if isinstance(plan.feed, tuple) else ()
