"""GOODPUT against the governors' policies and the hindsight optimum, over recorded replies.

    python benchmarks/goodput_report.py docs/benchmark_results/replay-goodput-2026-11-29

Reads `traces/varied*.jsonl.gz` of the folder (`varied` was tuned on, `varied_heldout` was not
looked at while tuning, both by replies of the default model), this machine's tables from the folder
or, without any, the default model's from `docs/benchmark_results/replay-2026-11-29`, and the stated
ones of `tests/data/costs`; writes `report.md` and, by `goodput_plots`, the plots. No
model and no clock: the same numbers everywhere. Imports the package: replay is part of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import goodput_plots
from goodput_walks import SHOWN, Measured, members, total, walk
from replay_report import STATED
from surefoot.app.generate_lookup import lookup_config
from surefoot.cli.replay import ReplayPolicy, policy_of
from surefoot.speculation.costs import CostBucket, StepCosts, load_costs
from surefoot.speculation.replay.traces import Trace, read_traces

OWN = Path(__file__).parent.parent / "docs" / "benchmark_results" / "replay-2026-11-29"
SETS = (("Tuned on", "varied"), ("Held out", "varied_heldout"))
#: Prose, and text that goes over what the prompt or the reply already said.
GROUPS = {
    "prose": ("chat", "story", "list"),
    "copy": ("code", "edit", "json", "table"),
    "translation": ("translation",),
}
WIDE = (9, 15, 31)


def own_table(folder: Path, sampled: bool) -> Path | None:
    """The folder's table of its own machine and model: `NAME.json`, or `NAME-sampled.json`."""
    found = [p for p in folder.glob("*.json") if p.stem.endswith("-sampled") == sampled]
    return min(found, default=None)


def tables(folder: Path, sampled: bool) -> list[StepCosts]:
    """This machine's table for the kind of trace, then the stated ones."""
    source = OWN if own_table(folder, False) is None else folder
    own = own_table(source, sampled)
    if own is None:
        raise SystemExit(f"{source} has no table for sampled replies")
    return [load_costs(path) for path in [own, *sorted(STATED.glob("*.json"))]]


def widened(costs: StepCosts, widest: int) -> StepCosts:
    """`costs` with widths beyond its own on the line through its last ones: what its engine's
    prefill costs too (64 tokens: about 200 ms)."""
    buckets = []
    for bucket in costs.buckets:
        last = max(bucket.verify_s)
        slope = (bucket.verify_s[last] - bucket.verify_seconds(last // 2)) / (last - last // 2)
        more = {w: bucket.verify_s[last] + slope * (w - last) for w in range(last + 1, widest + 1)}
        wide = {**bucket.verify_s, **more}
        buckets.append(CostBucket(bucket.context, bucket.pipelined_s, bucket.synchronous_s, wide))
    return StepCosts(costs.name, costs.source, tuple(buckets))


def sections(measured: dict[str, list[Measured]]) -> list[str]:
    """One table a group and kind of sampling: change of speed against plain decoding."""
    lines = []
    for kind, found in measured.items():
        for group, kinds in GROUPS.items():
            lines += section(f"{group}, {kind}", found, kinds)
    return lines


def section(title: str, found: list[Measured], kinds: tuple[str, ...] = ()) -> list[str]:
    head = " | ".join((*map(str, SHOWN), "hindsight optimum", "goodput / hindsight"))
    chosen = members(found[0].traces, kinds)
    tokens = sum(len(found[0].traces[index].emitted) for index in chosen)
    return [
        f"#### {title}: {len(chosen)} replies, {tokens} tokens\n",
        f"| cost table | {head} |",
        "|---|" + "---:|" * (len(SHOWN) + 2),
        *(one.row(kinds) for one in found),
        "",
    ]


def earlier_sections() -> list[str]:
    """The replies that the server's present policy was chosen and checked by."""
    lines = []
    for path in sorted((OWN / "traces").glob("*.jsonl")):
        costs = tables(OWN, path.stem.endswith("sampled"))
        found = [Measured.of(read_traces(path), table) for table in costs]
        lines += section(path.stem, found)
    return lines


def wide_section(folder: Path, files: dict[str, list[Trace]]) -> list[str]:
    """GOODPUT with wider drafts: the stated tables as far as they were measured, this machine's on
    the line through its last widths."""
    lines = [
        "| replies | cost table | " + " | ".join(f"--draft-max {k}" for k in (7, *WIDE)) + " |",
        "|---|---|" + "---:|" * (1 + len(WIDE)),
    ]
    for name, traces in files.items():
        for costs in tables(folder, "sampled" in name):
            own = not costs.name.startswith("gb10")
            cells = []
            for max_draft in (7, *WIDE):
                if not own and max_draft > 9:
                    cells.append("not measured")
                    continue
                base = lookup_config(None, max_draft, 2, 3)
                table = widened(costs, max_draft + 1) if own else costs
                walks = walk(traces, policy_of(ReplayPolicy.GOODPUT, base), table)
                gained = total(walks, list(range(len(walks)))).speed - 1
                cells.append(f"{100 * gained:+.1f} %")
            lines.append(f"| {name} | {costs.name} | {' | '.join(cells)} |")
    return lines


def worst_replies(measured: dict[str, list[Measured]]) -> list[str]:
    """The reply that lost most of each file and table, in plain steps, beside its bound."""
    lines = ["| replies | cost table | worst reply | tokens | lost |", "|---|---|---|---:|---:|"]
    for kind, found in measured.items():
        for one in found:
            walks = one.walks[str(ReplayPolicy.GOODPUT)]
            lost = [done.cost - done.plain_cost for done in walks]
            at = max(range(len(lost)), key=lambda index: lost[index])
            lines.append(
                f"| {kind} | {one.costs.name} | {one.traces[at].name} | {walks[at].num_tokens} "
                f"| {lost[at]:.2f} steps |"
            )
    return lines


INTRODUCTION = """# Replay: GOODPUT on varied prompts

`python benchmarks/goodput_report.py {folder}`

Change of speed against plain decoding, by recorded replies of {model} to 64 prompts of
eight kinds (`benchmarks/workloads/varied*.json`), greedy and with two seeds at temperature 0.8,
top-p 0.95. Every second prompt of each kind was held out: the split was made before the policy was
tuned, by replies of SmolLM2-135M. Those of the held-out half were replayed twice: the first time
GOODPUT looked up runs of two tokens or more, then the ablations on the tuned half
(`docs/adr/0006-goodput.md`) said to look single tokens up too. Nothing was changed for what the
held-out half showed. `gated` and `graded` are the command line's policies; `server-gated` is GATED
under a server's break-even rule. The hindsight optimum is the cheapest any schedule could have had
with prefixes of the same lookups, knowing the reply; GOODPUT may pass it where text repeats itself
in a short period, because its proposals run on.
"""


def main() -> None:
    folder = Path(sys.argv[1])
    model = tables(folder, False)[0].name.removesuffix(" greedy")
    parts = [INTRODUCTION.format(folder=folder.as_posix(), model=model)]
    held_out: dict[str, list[Measured]] = {}
    for title, stem in SETS:
        files = {
            kind: read_traces(folder / "traces" / f"{stem}-{kind}.jsonl.gz")
            for kind in ("greedy", "sampled")
        }
        measured = {
            kind: [Measured.of(traces, costs) for costs in tables(folder, kind == "sampled")]
            for kind, traces in files.items()
        }
        parts += [f"## {title}\n", *sections(measured)]
        parts += ["### Wider drafts\n", *wide_section(folder, files), ""]
        parts += ["### What the unluckiest reply lost\n", *worst_replies(measured), ""]
        held_out = measured
    if own_table(folder, False) is None:
        parts += ["## Earlier prompts (tuned on too)\n", *earlier_sections()]
    parts += ["## Plots\n", *goodput_plots.draw(folder, held_out)]
    (folder / "report.md").write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
