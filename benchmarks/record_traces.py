"""Record token traces of workloads, greedy and sampled, for `surefoot replay`.

    python benchmarks/record_traces.py --out DIR benchmarks/workloads/*.json

One file a workload and kind (`plain-greedy.jsonl`, `plain-sampled.jsonl`), one line a reply, named
by its item. Sampled replies use temperature 0.8, top-p 0.95 and seeds 1 to 5: a small model's
greedy chat repeats itself and flatters speculation; sampled prose is the hard case. Replies are
decoded plainly, several at once. Drives the package itself: a trace holds token ids, which no
HTTP reply carries.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.app.offline import reply_to, sampling, trace_of
from surefoot.app.options import RunOptions
from surefoot.app.stack import Stack, build_stack
from surefoot.config import SchedulerConfig
from surefoot.speculation.replay.traces import Trace, write_traces

ROWS = 4


def record(stack: Stack, item: dict[str, Any], seed: int | None) -> Trace:
    """One reply as a trace; `seed` None is greedy."""
    greedy = seed is None
    params = sampling(0.0 if greedy else 0.8, 0, 1.0 if greedy else 0.95, seed or 0)
    prompt = stack.encode_chat(item["messages"])
    reply = reply_to(stack, prompt, params, max_tokens=item["max_tokens"], write=str)
    name = item["id"] if greedy else f"{item['id']}-{seed}"
    return replace(trace_of(reply, stack.capacity), name=name)


def record_all(
    stack: Stack, items: Sequence[dict[str, Any]], seeds: Sequence[int | None]
) -> list[Trace]:
    jobs = [(item, seed) for item in items for seed in seeds]
    with ThreadPoolExecutor(ROWS) as pool:
        return list(pool.map(lambda job: record(stack, *job), jobs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workloads", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True, help="an existing file is kept")
    parser.add_argument("--model", default="default")
    parser.add_argument("--chat-template", type=Path, help="for a model without one")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3, 4, 5])
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    options = RunOptions(args.model, chat_template=args.chat_template)
    stack = build_stack(options, SchedulerConfig(max_rows=ROWS))
    try:
        for path in args.workloads:
            items = json.loads(path.read_text())
            for kind, seeds in (("greedy", [None]), ("sampled", args.seeds)):
                target = args.out / f"{path.stem}-{kind}.jsonl"
                if target.exists() or not seeds:
                    continue
                traces = record_all(stack, items, seeds)
                write_traces(traces, target)
                print(f"{target}: {len(traces)} traces, {sum(len(t.emitted) for t in traces)}")
    finally:
        stack.close()


if __name__ == "__main__":
    main()
