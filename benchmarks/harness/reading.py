"""Acceptance runs read back from their raw measurements, alone or several as one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.acceptance import LONG
from harness.acceptance_report import Run
from harness.asking import Answer, Ask
from harness.sse import Draft, Reply, Step
from harness.workloads import Item, load_long_task

Record = dict[str, Any]


def read_runs(folders: Sequence[Path], metric: str) -> Run:
    """All blocks of all runs. A run's rounds and sittings follow those of the one before; a block
    that was cut short, with fewer arms than its run's others of that workload, is left out, and so
    are arms that not every run of a workload had.

    Raises `OSError` for a folder without measurements.
    """
    answers: dict[str, list[Answer]] = {}
    others: list[float] = []
    first_round = first_sitting = 0
    for folder in folders:
        text = (folder / "raw.jsonl").read_text(encoding="utf-8")
        records = [json.loads(line) for line in text.splitlines()]
        others += [r["others_cores"] for r in records if r["others_cores"] is not None]
        for answer in whole_blocks(records, first_round, first_sitting):
            answers.setdefault(answer.ask.workload, []).append(answer)
        first_round += 1 + max((record["round"] for record in records), default=-1)
        first_sitting += 1 + max((sitting_of(record) for record in records), default=-1)
    shared = {name: with_shared_arms(blocks) for name, blocks in answers.items()}
    return Run(shared, first_round, metric, tuple(others))


def with_shared_arms(blocks: Sequence[Answer]) -> list[Answer]:
    names = set(blocks[0].replies).intersection(*(block.replies for block in blocks))
    return [
        replace(block, replies={arm: made for arm, made in block.replies.items() if arm in names})
        for block in blocks
    ]


def sitting_of(record: Record) -> int:
    """0 in runs of before there were any."""
    return int(record.get("sitting", 0))


def whole_blocks(records: Iterable[Record], first_round: int, first_sitting: int) -> list[Answer]:
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        key = (record["workload"], record["round"], record["question"])
        groups.setdefault(key, []).append(record)
    blocks = [block_of(group, first_round, first_sitting) for group in groups.values()]
    most: dict[str, int] = {}
    for block in blocks:
        workload = block.ask.workload
        most[workload] = max(most.get(workload, 0), len(block.replies))
    return [b for b in blocks if len(b.replies) == most[b.ask.workload] and is_even(b)]


def is_even(block: Answer) -> bool:
    """Every arm answered all items."""
    return len({len(replies) for replies in block.replies.values()}) == 1


def block_of(records: Sequence[Record], first_round: int, first_sitting: int) -> Answer:
    replies: dict[str, list[Reply]] = {}
    items: dict[str, Item] = {}
    for record in records:
        replies.setdefault(record["arm"], []).append(reply_of(record["reply"]))
        items[record["item"]] = Item(record["item"], (), 0, expected_text(record))
    first = records[0]
    ask = Ask(
        first["workload"],
        first["question"],
        first_round + first["round"],
        tuple(items.values()),
        first["sampling"],
        first_sitting + sitting_of(first),
    )
    return Answer(ask, {arm: tuple(made) for arm, made in replies.items()})


def expected_text(record: Record) -> str:
    if record["workload"] != LONG:
        return ""
    return load_long_task().paragraphs[int(record["item"].rpartition("-")[2])]


def reply_of(raw: Record) -> Reply:
    made = {
        "gaps_s": tuple(raw["gaps_s"]),
        "draft": Draft(**raw["draft"]),
        "steps": tuple(Step(**step) for step in raw.get("steps", ())),
    }
    return Reply(**{**raw, **made})


def read_meta(folders: Sequence[Path]) -> Record:
    """The last run's, from the first's beginning; the arguments of each."""
    metas = [json.loads((folder / "meta.json").read_text(encoding="utf-8")) for folder in folders]
    arguments = {
        f"run-{number}.{name}": value
        for number, meta in enumerate(metas, start=1)
        for name, value in meta["arguments"].items()
    }
    busy = [meta["busy_cores_before"] for meta in metas]
    known = [cores for cores in busy if cores is not None]
    return {
        **metas[-1],
        "began": metas[0]["began"],
        "arguments": metas[0]["arguments"] if len(metas) == 1 else arguments,
        "busy_cores_before": max(known, default=None),
    }
