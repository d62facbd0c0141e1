"""Which tokens a verify round keeps, and how many it may propose.

A looked-up draft is certain of itself (its proposal distribution is one-hot), so comparing it
with the target's own samples is lossless for every sampler: `docs/speculative-acceptance.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def accepted_prefix(draft: Sequence[int], samples: Sequence[int]) -> int:
    """How many leading tokens of `draft` equal the target's samples: `draft[i]` was fed after
    the position that sampled `samples[i]`.

    `[5, 6, 7]` against `[5, 6, 9, 4]`: 2.
    """
    count = 0
    for drafted, sampled in zip(draft, samples, strict=False):
        if drafted != sampled:
            break
        count += 1
    return count


def emitted_tokens(
    draft: Sequence[int], samples: Sequence[int], end_ids: Collection[int] = frozenset()
) -> tuple[int, ...]:
    """What the round emits: the accepted prefix and the target token after it, cut after an end
    token. `samples` has one token for each fed position, `len(draft) + 1` in all.

    The drafts kept are `min(accepted_prefix(...), len(emitted_tokens(...)))`: fewer than
    accepted only if an end token stood inside the accepted block.
    """
    return cut_after_end(samples[: accepted_prefix(draft, samples) + 1], end_ids)


def cut_after_end(tokens: Sequence[int], end_ids: Collection[int]) -> tuple[int, ...]:
    """`tokens` up to and with its first end token: what follows one is never emitted."""
    if end_ids:
        for index, token in enumerate(tokens):
            if token in end_ids:
                return tuple(tokens[: index + 1])
    return tuple(tokens)


def proposal_room(
    *, tokens_left: int, start: int, capacity: int | None = None, in_flight: bool = False
) -> int:
    """The widest proposal a row may be asked for; 0: it is not asked at all.

    `tokens_left` is `max_tokens` less the tokens emitted (read), `start` the KV positions valid
    before the next step, `capacity` the positions of the row's window. A round of `k` drafts
    emits up to `k + 1` tokens and appends `k + 1` positions: `k <= tokens_left - 1` and `start +
    k + 1 <= capacity`.

    `in_flight`: a step is in flight whose token was not read. A proposal made now is verified
    after that token at the earliest, so it counts as emitted and appended; without this a row
    would leave the pipeline for a proposal that cannot be asked again.
    """
    unread = 1 if in_flight else 0
    room = tokens_left - unread - 1
    if capacity is not None:
        room = min(room, capacity - start - unread - 1)
    return max(room, 0)
