"""The report of a load run: throughput against off, then latency and fairness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness.arms import OFF
from harness.comparison import Block, bootstrap, median_speed, question_rows, speed_ratio
from harness.load import Latency, Load, latency_of
from harness.meta_report import heading, servers
from harness.tables import bullet_list, markdown_table
from harness.verdicts import percent

LIMITS = (
    "A closed loop: a new request is sent when one ends, so queues stay short; open arrival, where "
    "requests come whether or not the server keeps up, is not shown.",
    "Total tokens per second are those of all replies over the time from the first request to the "
    "last token, prompts included. At the end fewer streams run than the concurrency says.",
    "Time to first token includes waiting for a free row where the concurrency exceeds them.",
    "Gaps are between pieces of text: the tokens of a verify round arrive as one piece.",
    "Fairness is Jain's index over the replies' tokens per second (1: all alike). Copying replies "
    "are faster with speculation on, which lowers it without anyone being slower.",
    "Client and server share the processors; the client's share is small, but not nothing.",
)


@dataclass(frozen=True, slots=True)
class Point:
    """One round at one concurrency: each arm's load."""

    concurrency: int
    round: int
    loads: Mapping[str, Load]

    def block(self) -> Block | None:
        """None where an arm answered nothing."""
        if not all(load.replies for load in self.loads.values()):
            return None
        return Block(
            f"concurrency {self.concurrency}",
            None,
            {arm: load.rate for arm, load in self.loads.items()},
        )


def load_report(
    points: Sequence[Point],
    meta: Mapping[str, Any],
    others_cores: Sequence[float] = (),
    plot: str = "",
) -> str:
    """`plot`: Markdown that shows the picture."""
    parts = [heading(f"Serving under load: {meta['style']} prompts", meta, others_cores)]
    blocks = [block for point in points if (block := point.block()) is not None]
    parts.append("## Throughput\n\n" + throughput_table(blocks))
    parts += [plot] if plot else []
    parts.append("## Latency and fairness\n\n" + latency_table(points))
    failures = [text for p in points for load in p.loads.values() for text in load.failures]
    if failures:
        parts.append("## Failures\n\n" + bullet_list(sorted(set(failures))))
    parts += [servers(meta), "## What this does not show\n\n" + bullet_list(LIMITS)]
    return "\n".join(parts)


def throughput_table(blocks: Sequence[Block]) -> str:
    rows = []
    for question in dict.fromkeys(block.question for block in blocks):
        group = [block for block in blocks if block.question == question]
        for arm in group[0].arms:
            against = against_off(group, arm) if arm != OFF and OFF in group[0].arms else ""
            rows.append([question, arm, median_speed(group, arm), against, len(group)])
    header = ["load", "arm", "total tokens/s", "against off (95 %; range of rounds)", "rounds"]
    return markdown_table(header, rows)


def against_off(group: Sequence[Block], arm: str) -> str:
    total = bootstrap(group, partial(speed_ratio, base=OFF, other=arm))
    (row,) = question_rows(group, OFF, arm)
    return (
        f"{percent(total.value)} ({percent(total.low)} to {percent(total.high)}; "
        f"{percent(row.low)} to {percent(row.high)})"
    )


def latency_table(points: Sequence[Point]) -> str:
    rows = []
    for concurrency in dict.fromkeys(point.concurrency for point in points):
        group = [point for point in points if point.concurrency == concurrency]
        for arm in group[0].loads:
            loads = [point.loads[arm] for point in group]
            if any(load.replies for load in loads):
                rows.append([concurrency, arm, *latency_cells(latency_of(loads))])
    header = [
        "concurrency",
        "arm",
        "replies (failed)",
        "first token ms, p50 / p95",
        "gap ms, p50 / p95",
        "stream tokens/s, min / median / max",
        "fairness",
    ]
    return markdown_table(header, rows)


def latency_cells(latency: Latency) -> list[str]:
    return [
        f"{latency.requests} ({latency.failures})",
        f"{latency.first_p50:.0f} / {latency.first_p95:.0f}",
        f"{latency.gap_p50:.1f} / {latency.gap_p95:.1f}",
        f"{latency.slowest:.1f} / {latency.median:.1f} / {latency.fastest:.1f}",
        f"{latency.fairness:.3f}",
    ]
