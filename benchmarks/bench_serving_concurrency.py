"""How a server divides its speed among many streams, with speculation on and off.

    python benchmarks/bench_serving_concurrency.py --prompt-style plain --concurrency 1,2,4,8
    python benchmarks/bench_serving_concurrency.py --load      # 64 mixed requests, 16 at a time

Two servers of one build take turns, load by load in random order; off is measured twice in each
round, for the noise floor. See docs/benchmarking.md.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import chain, cycle, islice

from harness.arms import OFF, OFF_AGAIN, ON, Arm, running_arms
from harness.asking import GREEDY
from harness.client import chat_body
from harness.load import Load, run_load
from harness.load_plots import draw_load
from harness.load_report import Point, load_report
from harness.machine import CpuTimes
from harness.runs import RunFolder
from harness.session import (
    Meta,
    add_run_options,
    add_server_options,
    new_parser,
    now,
    run_session,
    serve_command,
    server_arms,
    tell,
)
from harness.workloads import Item, load_items

LOAD_REQUESTS, LOAD_CONCURRENCY = 64, 16
REQUESTS_PER_STREAM, MIN_REQUESTS = 2, 4
QUICK_TOKENS = 24


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--prompt-style", choices=("plain", "copy", "mixed"), default="plain")
    parser.add_argument("--concurrency", type=integers, default=[1, 2, 4, 8], metavar="1,2,4,8")
    parser.add_argument("--requests", type=int, help="of each load (default: 2 a stream)")
    parser.add_argument("--load", action="store_true", help="64 mixed requests, 16 at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--parallel", type=int, default=8, help="rows of the servers started")
    parser.add_argument("--only", choices=(ON, OFF), help="one server instead of two")
    add_server_options(parser)
    add_run_options(parser, "serving-concurrency")
    args = parser.parse_args(argv)
    if args.load:
        args.prompt_style, args.concurrency = "mixed", [LOAD_CONCURRENCY]
        args.requests = args.requests or LOAD_REQUESTS
    if args.quick:
        args.rounds, args.max_tokens = 1, min(args.max_tokens, QUICK_TOKENS)
    return args


def integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def items_of(style: str) -> list[Item]:
    """Mixed: plain and copy in turn."""
    if style != "mixed":
        return load_items(style)
    return list(chain.from_iterable(zip(load_items("plain"), load_items("copy"), strict=True)))


def bodies_of(args: argparse.Namespace, concurrency: int) -> list[dict[str, object]]:
    """The same requests in the same order for every arm and round."""
    count = args.requests or max(MIN_REQUESTS, REQUESTS_PER_STREAM * concurrency)
    items = islice(cycle(items_of(args.prompt_style)), count)
    return [chat_body(i.messages, min(i.max_tokens, args.max_tokens), GREEDY) for i in items]


def warm(arms: Sequence[Arm], style: str) -> None:
    """Every prompt once on every server, so that prompt caches are in the same state."""
    for item in items_of(style):
        for arm in arms:
            arm.endpoint.stream_chat(chat_body(item.messages, 2, GREEDY))


class Bench:
    """Runs loads on the arms in turn and writes each down."""

    def __init__(self, args: argparse.Namespace, arms: Sequence[Arm], folder: RunFolder) -> None:
        self._args = args
        self._arms = {arm.name: arm for arm in arms}
        self._folder = folder
        self._random = random.Random(args.seed)
        self._pids = [arm.pid for arm in arms if arm.pid is not None]
        self.others_cores: list[float] = []

    def point(self, concurrency: int, number: int) -> Point:
        names = [*self._arms, *([OFF_AGAIN] if OFF in self._arms else [])]
        order = self._random.sample(names, len(names))
        loads = {name: self._load(name, concurrency, number) for name in order}
        return Point(concurrency, number, {name: loads[name] for name in names})

    def _load(self, name: str, concurrency: int, number: int) -> Load:
        time.sleep(self._args.pause)
        arm = self._arms[OFF if name == OFF_AGAIN else name]
        tell(f"concurrency {concurrency}, round {number}: {name}")
        before = CpuTimes.now(self._pids)
        load = run_load(arm.endpoint, bodies_of(self._args, concurrency), concurrency)
        others = CpuTimes.now(self._pids).others_since(before)
        if others is not None and self._pids:
            self.others_cores.append(others)
        self._folder.append(
            {"concurrency": concurrency, "round": number, "arm": name, "others_cores": others}
            | {"wall_s": load.wall_s, "replies": load.replies, "failures": load.failures}
        )
        return load


def measure(args: argparse.Namespace, folder: RunFolder, meta: Meta) -> str:
    flags, urls = server_arms(args)
    if args.only:
        flags = {args.only: flags[args.only]}
    flags = {name: f"--parallel {args.parallel} {text}" for name, text in flags.items()}
    with running_arms(serve_command(args), flags, urls, folder.path) as arms:
        meta |= {"style": args.prompt_style, "servers": [arm.about() for arm in arms]}
        folder.write_meta(meta)
        warm(arms, args.prompt_style)
        bench = Bench(args, arms, folder)
        points = [
            bench.point(concurrency, number)
            for number in range(args.rounds)
            for concurrency in args.concurrency
        ]
        meta["peak_memory_mib"] = {arm.name: arm.peak_memory_mib() for arm in arms}
    meta["ended"] = now()
    points.sort(key=lambda point: (point.concurrency, point.round))
    return load_report(points, meta, bench.others_cores, draw_load(folder.path, points))


def main() -> int:
    args = parse_arguments()
    return run_session("bench_serving_concurrency", args, partial(measure, args))


if __name__ == "__main__":
    sys.exit(main())
