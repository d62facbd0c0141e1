"""The pictures of a peer comparison. Needs matplotlib, and says so where it is missing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.comparison import Block, speed_ratio
from harness.peer_arms import OURS_AGAIN, own_plain

WITHOUT = "There are no plots: matplotlib is not installed.\n"
COLOURS = ("tab:blue", "tab:orange", "tab:green")


def draw_peers(folder: Path, blocks: Mapping[str, Sequence[Block]]) -> str:
    """Write `speeds.png` and `gains.png`; the Markdown that shows them."""
    timed = {name: list(group) for name, group in blocks.items() if group}
    if not timed:
        return "There are no plots: every reply was too short to time.\n"
    if not can_draw():
        return WITHOUT
    draw_speeds(folder / "speeds.png", timed)
    draw_gains(folder / "gains.png", timed)
    return (
        "![tokens per second: the median, and the slowest and fastest request](speeds.png)\n\n"
        "![what each engine's own speculation changes](gains.png)\n"
    )


def can_draw() -> bool:
    """Whether matplotlib is there; it is told to draw into files only."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    return True


def draw_speeds(path: Path, blocks: Mapping[str, Sequence[Block]]) -> None:
    """A bar an arm and workload, fastest plain first."""
    first = next(iter(blocks.values()))

    def plain_speed(arm: str) -> float:
        return statistics.median(block.arms[arm].per_second for block in first)

    arms = sorted(first[0].arms, key=plain_speed)
    series: dict[str, list[tuple[float, float, float]]] = {}
    for name, group in blocks.items():
        speeds = [[block.arms[arm].per_second for block in group] for arm in arms]
        series[name] = [(statistics.median(one), min(one), max(one)) for one in speeds]
    draw_bars(path, arms, series, "tokens per second")


def draw_gains(path: Path, blocks: Mapping[str, Sequence[Block]]) -> None:
    """Percent over the same engine's plain decoding, with the range over questions' blocks."""
    first = next(iter(blocks.values()))
    present = first[0].arms
    arms = [arm for arm in present if arm not in (own_plain(arm), OURS_AGAIN)]
    arms = [arm for arm in arms if own_plain(arm) in present]
    series: dict[str, list[tuple[float, float, float]]] = {}
    for name, group in blocks.items():
        series[name] = []
        for arm in arms:
            ratios = [block.ratio(own_plain(arm), arm) for block in group]
            total = speed_ratio(group, own_plain(arm), arm)
            shown = (100 * (ratio - 1) for ratio in (total, min(ratios), max(ratios)))
            series[name].append((next(shown), next(shown), next(shown)))
    draw_bars(path, arms, series, "percent against its own plain")


def draw_bars(
    path: Path,
    arms: Sequence[str],
    series: Mapping[str, Sequence[tuple[float, float, float]]],
    unit: str,
) -> None:
    """Horizontal bars: a value with its lowest and highest, a group an arm."""
    from matplotlib import pyplot as plt

    figure: Any
    axes: Any
    figure, axes = plt.subplots(figsize=(9, 1 + 0.45 * len(arms)))
    height = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        places = [place + (index - (len(series) - 1) / 2) * height for place in range(len(arms))]
        middles = [value for value, _, _ in values]
        below = [max(0.0, value - low) for value, low, _ in values]
        above = [max(0.0, high - value) for value, _, high in values]
        colour = COLOURS[index % len(COLOURS)]
        axes.barh(places, middles, height, xerr=(below, above), label=name, color=colour)
    axes.set_yticks(range(len(arms)), arms)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel(unit)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
