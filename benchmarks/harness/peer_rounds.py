"""What each engine's speculation brings by how often the question was asked before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.asking import Answer
from harness.comparison import Block, speed_ratio
from harness.peer_arms import OURS_AGAIN, own_plain
from harness.tables import markdown_table
from harness.verdicts import percent

TEXT = (
    "Each arm against its own plain decoding. A speculation that looks at its request alone gains "
    "the same in every round; one that keeps what earlier requests said has the whole reply from "
    "the second round on, and only its first round is what a new question gets.\n\n"
)


def by_round(answers: Mapping[str, Sequence[Answer]]) -> str:
    """A table for each workload that was asked in two rounds or more; empty without any."""
    parts = []
    for name, group in answers.items():
        rounds = round_blocks(group)
        if len(rounds) > 1:
            parts.append(f"### {name}\n\n{rounds_table(rounds)}")
    return "## By round\n\n" + TEXT + "\n".join(parts) if parts else ""


def round_blocks(answers: Sequence[Answer]) -> dict[int, list[Block]]:
    """The blocks that can be timed, by round, first to last."""
    rounds: dict[int, list[Block]] = {}
    for answer in sorted(answers, key=lambda answer: answer.ask.round):
        block = answer.block("client")
        if block is not None:
            rounds.setdefault(answer.ask.round, []).append(block)
    return rounds


def rounds_table(rounds: Mapping[int, Sequence[Block]]) -> str:
    arms = next(iter(rounds.values()))[0].arms
    rows = [
        [arm, *(percent(speed_ratio(blocks, own_plain(arm), arm)) for blocks in rounds.values())]
        for arm in arms
        if own_plain(arm) in arms and arm not in (own_plain(arm), OURS_AGAIN)
    ]
    return markdown_table(["arm", *(f"round {number + 1}" for number in rounds)], rows)
