"""Cost per token of every policy over recorded traces, on several machines' cost tables.

    python benchmarks/replay_report.py docs/benchmark_results/replay-2026-11-29

Reads `traces/*.jsonl` (from `record_traces.py`) and `*.json` (from `surefoot calibrate`) of the
folder, and the tables of `tests/data/costs`; writes `report.md` beside them. A file whose name ends
in `-sampled.json` prices sampled traces of the same machine. No model and no clock: the same
numbers everywhere. Imports the package: replay is part of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from surefoot.app.generate_lookup import lookup_config
from surefoot.cli.replay import ReplayPolicy, policy_of
from surefoot.speculation.costs import StepCosts, load_costs
from surefoot.speculation.replay.comparison import PolicyTotals, compare
from surefoot.speculation.replay.traces import Trace, read_traces

STATED = Path(__file__).parent.parent / "tests" / "data" / "costs"
GROUPS = (
    ("Prompts the settings were chosen by", ""),
    ("Other prompts (a check; looked at while choosing)", "_heldout"),
    ("Fresh prompts (written when every choice had been made)", "_fresh"),
)
KINDS = ("plain{}-sampled", "plain{}-greedy", "copy{}-greedy", "copy{}-sampled")


def tables(folder: Path, sampled: bool) -> list[StepCosts]:
    """This machine's table for the kind of trace, then the stated ones."""
    own = [path for path in sorted(folder.glob("*.json")) if _is_sampled(path) == sampled]
    return [load_costs(path) for path in [*own, *sorted(STATED.glob("*.json"))]]


def _is_sampled(path: Path) -> bool:
    return path.stem.endswith("-sampled")


def section(name: str, traces: list[Trace], costs: list[StepCosts]) -> str:
    policies = [policy_of(kind, lookup_config(None, 7, 2, 3)) for kind in ReplayPolicy]
    rows = [(table.name, compare(traces, table, policies)) for table in costs]
    names = [row.name for row in rows[0][1]]
    tokens = sum(len(trace.emitted) for trace in traces)
    lines = [
        f"### {name}: {len(traces)} replies, {tokens} tokens\n",
        f"| cost table | {' | '.join(names)} |",
        "|---|" + "---:|" * len(names),
    ]
    lines += [f"| {table} | {' | '.join(map(_cell, totals))} |" for table, totals in rows]
    return "\n".join(lines) + "\n"


def _cell(row: PolicyTotals) -> str:
    return f"{row.cost_per_token:.4f} ({100 * (row.speed - 1):+.1f} %)"


def main() -> None:
    folder = Path(sys.argv[1])
    parts = [
        "# Replay: cost per token by policy and machine\n",
        f"`python benchmarks/replay_report.py {folder.as_posix()}`\n",
        "In pipelined plain steps, with the change of speed against plain decoding in brackets. "
        "`server-gated` is GATED under a server's break-even rule; `gated` and `graded` are the "
        "command line's policies, without the rule; `fixed` proposes at every match; the "
        "hindsight optimum is the cheapest any schedule could have had with prefixes of the same "
        "lookups.\n",
    ]
    for title, group in GROUPS:
        if any((folder / "traces" / f"{kind.format(group)}.jsonl").exists() for kind in KINDS):
            parts.append(f"## {title}\n")
        for kind in KINDS:
            name = kind.format(group)
            path = folder / "traces" / f"{name}.jsonl"
            if path.exists():
                costs = tables(folder, name.endswith("-sampled"))
                parts.append(section(name, read_traces(path), costs))
    (folder / "report.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
