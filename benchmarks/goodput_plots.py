"""Plots for `goodput_report.py`: cost per token by policy, and the ledger along one reply."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from goodput_walks import Measured
from surefoot.speculation.costs import StepCosts
from surefoot.speculation.goodput.ledger import LOSS_RATE, MAX_GAIN
from surefoot.speculation.prices import StepPrices
from surefoot.speculation.replay.simulation import Replay, TickKind

GROUPS = (("prose", ("chat", "story", "list")), ("copy", ("code", "edit", "json", "table")))
SHARP_TABLE = "gb10-qwen3-1.7b-4bit"
"""The table where a miss is dearest."""


def draw(folder: Path, measured: dict[str, list[Measured]]) -> list[str]:
    """Write the plots; the lines of the report that show them."""
    cost_per_token(measured, folder / "cost-per-token.png")
    lines = ["![cost per token by policy](cost-per-token.png)\n"]
    sharp = next(one for one in measured["sampled"] if one.costs.name == SHARP_TABLE)
    walks = sharp.walks["goodput"]
    for title, at in (
        ("best", max(range(len(walks)), key=lambda i: walks[i].plain_cost - walks[i].cost)),
        ("worst", max(range(len(walks)), key=lambda i: walks[i].cost - walks[i].plain_cost)),
    ):
        name = f"ledger-{title}.png"
        ledger(walks[at], sharp.costs, sharp.traces[at].name, folder / name)
        lines.append(f"![the ledger along the reply it did {title} on]({name})\n")
    return lines


def cost_per_token(measured: dict[str, list[Measured]], path: Path) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharey="row")
    for row, (kind, found) in enumerate(measured.items()):
        for column, (group, kinds) in enumerate(GROUPS):
            _bars(axes[row][column], found, kinds)
            axes[row][column].set_title(f"{group}, {kind}, held out")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, fontsize=8, ncol=len(names), loc="upper center")
    figure.supylabel("cost per token (plain decoding: 1)")
    figure.tight_layout(rect=(0, 0, 1, 0.96))
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _bars(axis: plt.Axes, found: list[Measured], kinds: tuple[str, ...]) -> None:
    names = [*found[0].walks, "hindsight optimum"]
    width = 0.8 / len(names)
    for place, one in enumerate(found):
        chosen = [i for i, trace in enumerate(one.traces) if trace.name.split("-")[0] in kinds]
        tokens = sum(one.walks["goodput"][i].num_tokens for i in chosen)
        costs = [sum(walks[i].cost for i in chosen) / tokens for walks in one.walks.values()]
        costs.append(sum(one.best[i] for i in chosen) / tokens)
        for bar, (name, cost) in enumerate(zip(names, costs, strict=True)):
            label = name if place == 0 else None
            axis.bar(place + bar * width, cost, width, color=f"C{bar}", label=label)
    axis.axhline(1.0, color="black", linewidth=0.8)
    axis.set_ylim(bottom=0.3)
    labels = [
        one.costs.name.removesuffix("-4bit").removeprefix("gb10-").removesuffix("-instruct")
        for one in found
    ]
    labels[0] = "this CPU"
    axis.set_xticks([place + 0.32 for place in range(len(found))], labels, fontsize=7)


def ledger(walk: Replay, costs: StepCosts, name: str, path: Path) -> None:
    """Balance after each tick, the floor it may not pass, and the true gain."""
    prices = StepPrices.of(costs.buckets[0], 7)
    accepted = {done.position: done.accepted for done in walk.rounds}
    tokens, balances, gains, marks = [0], [0.0], [0.0], []
    balance = gain = 0.0
    first = walk.ticks[0].context - 1
    for tick in walk.ticks:
        emitted = 1 + accepted.get(tick.context - first, 0) * (tick.kind is TickKind.VERIFY)
        change = emitted - tick.cost(costs)
        if tick is walk.ticks[0] and tick.kind is TickKind.SYNCHRONOUS:
            change = 0.0
        gain += change
        balance = min(balance + change, MAX_GAIN)
        tokens.append(tokens[-1] + emitted)
        balances.append(balance)
        gains.append(gain)
        if tick.kind is TickKind.VERIFY:
            marks.append((tokens[-1], balance, emitted > 1))
    figure, axis = plt.subplots(figsize=(9, 4))
    narrow = prices.worst_loss(2)
    axis.plot(tokens, [-LOSS_RATE * t - narrow for t in tokens], "r--", label="floor")
    axis.step(tokens, gains, where="post", color="0.7", label="gain without the cap")
    axis.step(tokens, balances, where="post", label="balance")
    for landed, colour in ((True, "tab:green"), (False, "tab:red")):
        points = [(t, b) for t, b, hit in marks if hit is landed]
        if points:
            label = "round that lands" if landed else "round that misses"
            axis.scatter(*zip(*points, strict=True), s=14, color=colour, label=label, zorder=3)
    axis.set_ylim(-narrow - 2.0, max(MAX_GAIN + 1.0, min(max(gains), 12.0)))
    axis.set_xlabel("tokens emitted")
    axis.set_ylabel("plain steps")
    axis.set_title(f"{name}, {costs.name}")
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)
