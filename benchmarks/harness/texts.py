"""What the arms wrote, compared: partings of texts, and what drafts came to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from harness.arms import OFF
from harness.asking import Answer
from harness.sse import Reply


def parting_line(answers: Sequence[Answer], arm: str) -> str:
    """How often this arm's text is not the off arm's. In a sentence for the report."""
    pairs = reply_pairs(answers, arm)
    parted = [(ours, base) for base, ours in pairs if ours.text != base.text]
    if not parted:
        return f"{arm}: all {len(pairs)} texts equal those of off."
    tokens = sum(base.tokens for base, _ in pairs)
    shared = [common_length(ours.text, base.text) / max(len(base.text), 1) for ours, base in parted]
    mean = 100.0 * sum(shared) / len(shared)
    return (
        f"{arm}: {len(parted)} of {len(pairs)} texts part from off's, "
        f"{1000.0 * len(parted) / tokens:.1f} times in 1,000 tokens; "
        f"on average {mean:.0f} % of the text is the same before it."
    )


def reply_pairs(answers: Sequence[Answer], arm: str) -> list[tuple[Reply, Reply]]:
    return [
        pair
        for answer in answers
        if arm in answer.replies
        for pair in zip(answer.replies[OFF], answer.replies[arm], strict=True)
    ]


def common_length(one: str, other: str) -> int:
    """Characters before the first difference."""
    for index, (a, b) in enumerate(zip_longest(one, other)):
        if a != b:
            return index
    return len(one)


def draft_line(answers: Sequence[Answer], arm: str) -> str:
    replies = [ours for _, ours in reply_pairs(answers, arm)]
    rounds = sum(reply.draft.rounds for reply in replies)
    proposed = sum(reply.draft.proposed for reply in replies)
    accepted = sum(reply.draft.accepted for reply in replies)
    tokens = sum(reply.tokens for reply in replies)
    if not proposed:
        return f"{arm}: nothing was proposed in {tokens} tokens."
    emitted = f"{(accepted + rounds) / rounds:.2f} tokens a round" if rounds else "rounds not told"
    return (
        f"{arm}: {rounds} verify rounds in {tokens} tokens, {proposed} proposed, "
        f"{accepted} accepted ({100.0 * accepted / proposed:.0f} %), {emitted}."
    )
