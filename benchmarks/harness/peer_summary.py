"""One row an arm over both workloads: the table that a reader looks at first."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial

from harness.asking import Answer
from harness.comparison import Block, bootstrap, question_rows, speed_ratio
from harness.peer_arms import OURS_AGAIN, OURS_PLAIN, own_plain
from harness.tables import markdown_table
from harness.verdicts import percent

HEADER = (
    "tokens/s",
    "its speculation against its own plain",
    "worst question",
)


def summary_table(
    blocks: Mapping[str, Sequence[Block]],
    answers: Mapping[str, Sequence[Answer]],
    memory: Mapping[str, float | None],
) -> str:
    """Medians over requests with the smallest and largest; gains with their 95 % intervals."""
    timed = {name: group for name, group in blocks.items() if group}
    if not timed:
        return "Every reply was too short to time.\n"
    header = ["arm"]
    for name in timed:
        header += [f"{name}: {column}" for column in HEADER]
    header += ["first token, ms", "peak memory, MiB"]
    rows = []
    for arm in next(iter(timed.values()))[0].arms:
        cells = [arm]
        for group in timed.values():
            cells += [spread(speeds_of(group, arm)), *gain_cells(group, arm)]
        mib = memory.get(OURS_PLAIN if arm == OURS_AGAIN else arm)
        rows.append([*cells, spread(first_ms(answers, arm)), f"{mib:.0f}" if mib else "not told"])
    return markdown_table(header, rows)


def speeds_of(blocks: Sequence[Block], arm: str) -> list[float]:
    return [block.arms[arm].per_second for block in blocks]


def first_ms(answers: Mapping[str, Sequence[Answer]], arm: str) -> list[float]:
    return [
        1000.0 * answer.replies[arm][0].first_s for group in answers.values() for answer in group
    ]


def spread(values: Sequence[float]) -> str:
    """ "66 (60-71)"."""
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def gain_cells(blocks: Sequence[Block], arm: str) -> list[str]:
    """What speculation gains or loses, in total and on the question it does worst on."""
    base = own_plain(arm)
    if base == arm or base not in blocks[0].arms:
        return ["", ""]
    total = bootstrap(blocks, partial(speed_ratio, base=base, other=arm))
    worst = min(question_rows(blocks, base, arm), key=lambda row: row.ratio)
    shown = f"{percent(total.value)} ({percent(total.low)} to {percent(total.high)})"
    return [shown, f"{percent(worst.ratio)} ({worst.question})"]
