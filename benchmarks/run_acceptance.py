"""Does speculation cost nothing where it cannot help, and help where it can? One command says.

    python benchmarks/run_acceptance.py              # (a) to (c), about an hour on two cores
    python benchmarks/run_acceptance.py --quick      # a look, under 5 minutes; decides nothing

Starts servers of one build (on, off, and on without its price rule), asks them in turn, request by
request in random order, and writes raw measurements and a report into a new folder. The off server
is asked twice in each block: what those two differ by is the noise floor. See docs/benchmarking.md.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from harness import acceptance, machine
from harness.acceptance_report import Run, report
from harness.arms import DEFAULT_PROGRAM, OFF, ON, UNPRICED, ServeCommand, running_arms
from harness.asking import Answer, Asker
from harness.client import HttpError, NotReadyError
from harness.exclusive import OverlapError, exclusive
from harness.runs import RunFolder
from harness.sse import StreamError

RESULTS = Path(__file__).parent / "results"
QUICK_ITEMS, QUICK_ROUNDS, QUICK_TOKENS = 2, 1, 64
DEFAULT_WORKLOADS = [name for name in acceptance.WORKLOADS if name != acceptance.LONG]


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    amount = parser.add_argument_group("how much")
    amount.add_argument("--workload", action="append", choices=acceptance.WORKLOADS)
    amount.add_argument("--rounds", type=int, help="blocks of each question (default: 5)")
    amount.add_argument("--items", type=int, help="questions of each workload (default: all)")
    amount.add_argument("--max-tokens", type=int, help="cut replies at this length")
    amount.add_argument("--target", type=int, action="append", help="context length of `long`")
    amount.add_argument("--heldout", action="store_true", help="the prompts kept out of tuning")
    amount.add_argument("--quick", action="store_true")
    amount.add_argument("--seed", type=int, default=0, help="of the order of arms and questions")
    amount.add_argument("--pause", type=float, default=0.2, help="seconds before each request")
    amount.add_argument("--metric", choices=("server", "client"), default="server")
    servers = parser.add_argument_group("servers")
    servers.add_argument("--program", default=DEFAULT_PROGRAM, help="what `serve` is added to")
    servers.add_argument("--flags", default="", help="flags of every server")
    servers.add_argument("--on-flags", default="--draft-kind prompt-lookup")
    servers.add_argument("--off-flags", default="--draft-kind none")
    servers.add_argument("--unpriced-flags", default="--min-tokens-per-round off")
    servers.add_argument("--no-unpriced", action="store_true", help="leave that arm out")
    servers.add_argument("--arm", action="append", default=[], metavar="NAME=FLAGS")
    servers.add_argument("--on-url", help="a running server instead of a new one")
    servers.add_argument("--off-url")
    servers.add_argument("--unpriced-url")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the run's folder goes")
    parser.add_argument("--name", default="acceptance")
    parser.add_argument("--force", action="store_true", help="run on a busy machine too")
    return parser.parse_args(argv)


def amount_of(args: argparse.Namespace) -> acceptance.Amount:
    """What was asked for; `--quick` only changes what was not."""
    rounds, items, tokens = (QUICK_ROUNDS, QUICK_ITEMS, QUICK_TOKENS) if args.quick else (5, 0, 0)
    targets = tuple(args.target or ((1024,) if args.quick else ()))
    return acceptance.Amount(
        args.rounds or rounds,
        args.items or items or None,
        args.max_tokens or tokens or None,
        targets,
        args.heldout,
    )


def arm_flags(args: argparse.Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """Flags and URLs by arm. With a running on-server, the unpriced arm needs a URL too."""
    urls = {ON: args.on_url, OFF: args.off_url, UNPRICED: args.unpriced_url}
    given = {name: url for name, url in urls.items() if url}
    flags = {ON: args.on_flags, OFF: args.off_flags}
    if UNPRICED in given or not (args.no_unpriced or given):
        flags[UNPRICED] = f"{args.on_flags} {args.unpriced_flags}"
    for extra in args.arm:
        name, _, text = extra.partition("=")
        flags[name] = text
    return flags, given


def measure(args: argparse.Namespace, folder: RunFolder, meta: dict[str, Any]) -> Run:
    command = ServeCommand(shlex.split(args.program), shlex.split(args.flags))
    flags, urls = arm_flags(args)
    amount = amount_of(args)
    tell(f"starting {', '.join(flags)}; results go to {folder.path}")
    with running_arms(command, flags, urls, folder.path) as arms:
        meta["servers"] = [arm.about() for arm in arms]
        folder.write_meta(meta)
        asker = Asker(arms, folder, args.seed, args.pause)
        answers: dict[str, list[Answer]] = {}
        for workload in args.workload or DEFAULT_WORKLOADS:
            asks = acceptance.asks_of(workload, amount, arms, args.seed)
            skip = [UNPRICED] if workload == acceptance.TWO_STREAMS else []
            answers[workload] = acceptance.run_workload(asker, asks, skip, tell)
        meta["peak_memory_mib"] = {arm.name: arm.peak_memory_mib() for arm in arms}
        return Run(answers, amount.rounds, args.metric, tuple(asker.others_cores))


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> int:
    args = parse_arguments()
    try:
        with exclusive():
            busy = machine.refuse_if_busy(1e9 if args.force else machine.BUSY_CORES)
            folder = RunFolder(args.out, args.name)
            meta = {
                "benchmark": "run_acceptance",
                "began": time.strftime("%Y-%m-%d %H:%M:%S"),
                "arguments": {k: v for k, v in vars(args).items() if k not in ("out", "program")},
                "machine": machine.describe(),
                "packages": machine.package_versions(["surefoot", "onnxruntime", "numpy"]),
                "busy_cores_before": busy,
            }
            run = measure(args, folder, meta)
            meta["ended"] = time.strftime("%Y-%m-%d %H:%M:%S")
            folder.write_meta(meta)
            print(folder.write_report(report(run, meta)).read_text(encoding="utf-8"))
    except (machine.BusyError, OverlapError, NotReadyError, HttpError, StreamError) as error:
        tell(f"not measured: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
