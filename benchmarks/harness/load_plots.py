"""The picture of a load run: throughput and waiting by concurrency. Needs matplotlib."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.load import latency_of
from harness.load_report import Point
from harness.peer_plots import WITHOUT, can_draw

PANELS = ("total tokens per second", "first token, ms, p95", "gap between pieces, ms, p95")


def draw_load(folder: Path, points: Sequence[Point]) -> str:
    """Write `load.png`; the Markdown that shows it."""
    answered = [point for point in points if all(load.replies for load in point.loads.values())]
    if not answered:
        return "There is no plot: some server answered nothing.\n"
    if not can_draw():
        return WITHOUT
    from matplotlib import pyplot as plt

    figure: Any
    axes: Any
    figure, axes = plt.subplots(1, len(PANELS), figsize=(12, 3.8))
    for arm in answered[0].loads:
        series = values_of(answered, arm)
        for panel, title in enumerate(PANELS):
            axes[panel].plot(
                list(series), [values[panel] for values in series.values()], "o-", label=arm
            )
            axes[panel].set_title(title)
            axes[panel].set_xlabel("requests at a time")
            axes[panel].set_ylim(bottom=0)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(folder / "load.png", dpi=110)
    plt.close(figure)
    return "![throughput and waiting by concurrency](load.png)\n"


def values_of(points: Sequence[Point], arm: str) -> dict[int, tuple[float, float, float]]:
    """By concurrency, over its rounds: median throughput, p95 of first tokens and of gaps."""
    values = {}
    for concurrency in sorted({point.concurrency for point in points}):
        loads = [point.loads[arm] for point in points if point.concurrency == concurrency]
        latency = latency_of(loads)
        speed = statistics.median(load.rate.per_second for load in loads)
        values[concurrency] = (speed, latency.first_p95, latency.gap_p95)
    return values
