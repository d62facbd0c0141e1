"""Does speculation cost nothing where it cannot help, and help where it can? One command says.

    python benchmarks/run_acceptance.py              # (a) to (c), about an hour on two cores
    python benchmarks/run_acceptance.py --quick      # a look, under 5 minutes; decides nothing

Starts servers of one build (on, off, and on without its price rule), asks them in turn, request by
request in random order, and writes raw measurements and a report into a new folder. The off server
is asked twice in each block: what those two differ by is the noise floor. See docs/benchmarking.md.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from harness import acceptance
from harness.acceptance_report import Run, report
from harness.arms import UNPRICED, running_arms
from harness.asking import Answer, Asker
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

QUICK_ITEMS, QUICK_ROUNDS, QUICK_TOKENS = 2, 1, 64
DEFAULT_WORKLOADS = [name for name in acceptance.WORKLOADS if name != acceptance.LONG]


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    amount = parser.add_argument_group("how much")
    amount.add_argument("--workload", action="append", choices=acceptance.WORKLOADS)
    amount.add_argument("--rounds", type=int, help="blocks of each question (default: 5)")
    amount.add_argument("--items", type=int, help="questions of each workload (default: all)")
    amount.add_argument("--max-tokens", type=int, help="cut replies at this length")
    amount.add_argument("--target", type=int, action="append", help="context length of `long`")
    amount.add_argument("--heldout", action="store_true", help="the prompts kept out of tuning")
    parser.add_argument("--metric", choices=("server", "client"), default="server")
    parser.add_argument("--unpriced-flags", default="--min-tokens-per-round off")
    parser.add_argument("--unpriced-url")
    parser.add_argument("--no-unpriced", action="store_true", help="leave that arm out")
    add_server_options(parser)
    add_run_options(parser, "acceptance")
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
    """Flags and URLs by arm. Beside running servers the unpriced arm needs a URL of its own."""
    flags, urls = server_arms(args)
    if args.unpriced_url:
        urls[UNPRICED] = args.unpriced_url
    if UNPRICED in urls or not (args.no_unpriced or urls):
        flags[UNPRICED] = f"{args.on_flags} {args.unpriced_flags}"
    return flags, urls


def measure(args: argparse.Namespace, folder: RunFolder, meta: Meta) -> str:
    flags, urls = arm_flags(args)
    amount = amount_of(args)
    tell(f"starting {', '.join(flags)}")
    with running_arms(serve_command(args), flags, urls, folder.path) as arms:
        meta["servers"] = [arm.about() for arm in arms]
        folder.write_meta(meta)
        asker = Asker(arms, folder, args.seed, args.pause, fields={"timings_per_token": True})
        answers: dict[str, list[Answer]] = {}
        for workload in args.workload or DEFAULT_WORKLOADS:
            asks = acceptance.asks_of(workload, amount, arms, args.seed)
            skip = [UNPRICED] if workload == acceptance.TWO_STREAMS else []
            answers[workload] = acceptance.run_workload(asker, asks, skip, tell)
        meta["peak_memory_mib"] = {arm.name: arm.peak_memory_mib() for arm in arms}
    meta["ended"] = now()
    return report(Run(answers, amount.rounds, args.metric, tuple(asker.others_cores)), meta)


def main() -> int:
    args = parse_arguments()
    return run_session("run_acceptance", args, partial(measure, args))


if __name__ == "__main__":
    sys.exit(main())
