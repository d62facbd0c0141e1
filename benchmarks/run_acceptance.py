"""Does speculation cost nothing where it cannot help, and help where it can? One command says.

    python benchmarks/run_acceptance.py              # (a) to (c), about an hour on two cores
    python benchmarks/run_acceptance.py --quick      # a look, under 5 minutes; decides nothing

Starts servers of one build (on, off, and on without its price rule), asks them in turn, request by
request in random order, and writes raw measurements and a report into a new folder. The off server
is asked twice in each block: what those two differ by is the noise floor. See docs/benchmarking.md.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass, field
from functools import partial

from harness import acceptance
from harness.acceptance_report import Run, report
from harness.arms import OFF, ON, UNPRICED, Arm, running_arms, told_to_be_off
from harness.asking import Answer, Ask, Asker
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
    amount.add_argument("--restart-every", type=int, help="rounds that one set of servers answers")
    parser.add_argument("--metric", choices=("server", "client"), default="server")
    parser.add_argument("--unpriced-flags", default="--min-tokens-per-round off")
    parser.add_argument("--unpriced-url")
    parser.add_argument("--no-unpriced", action="store_true", help="leave that arm out")
    parser.add_argument(
        "--one-process", action="store_true", help="off is the on server, told not to speculate"
    )
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
    if args.one_process:
        del flags[OFF]
    if args.unpriced_url:
        urls[UNPRICED] = args.unpriced_url
    if UNPRICED in urls or not (args.no_unpriced or urls):
        flags[UNPRICED] = f"{args.on_flags} {args.unpriced_flags}"
    return flags, urls


@dataclass
class Measured:
    """What all sittings have brought so far."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    others_cores: list[float] = field(default_factory=list)
    asks: dict[str, list[Ask]] = field(default_factory=dict)

    def sit(
        self, args: argparse.Namespace, folder: RunFolder, meta: Meta, sitting: int, rounds: int
    ) -> None:
        """Start all servers, ask them `rounds` rounds of every workload, end them."""
        flags, urls = arm_flags(args)
        tell(f"starting {', '.join(flags)}")
        with running_arms(serve_command(args), flags, urls, folder.path) as arms:
            if args.one_process:
                arms.append(told_to_be_off(next(arm for arm in arms if arm.name == ON)))
            if not meta["servers"]:
                meta["servers"] = [arm.about() for arm in arms]
                folder.write_meta(meta)
            seed, fields = args.seed + sitting, {"timings_per_token": True}
            asker = Asker(arms, folder, seed, args.pause, fields=fields)
            for workload in args.workload or DEFAULT_WORKLOADS:
                asks = acceptance.of_sitting(self._asks(args, workload, arms), sitting, rounds)
                skip = [UNPRICED] if workload == acceptance.TWO_STREAMS else []
                made = acceptance.run_workload(asker, asks, skip, tell)
                self.answers.setdefault(workload, []).extend(made)
            note_peaks(meta, arms)
        self.others_cores += asker.others_cores

    def _asks(self, args: argparse.Namespace, workload: str, arms: list[Arm]) -> list[Ask]:
        if workload not in self.asks:
            self.asks[workload] = acceptance.asks_of(workload, amount_of(args), arms, args.seed)
        return self.asks[workload]


def note_peaks(meta: Meta, arms: list[Arm]) -> None:
    """The most that any process of an arm had."""
    peaks = meta.setdefault("peak_memory_mib", {})
    for arm in arms:
        peak = arm.peak_memory_mib()
        if peak is not None:
            peaks[arm.name] = max(peak, peaks.get(arm.name, 0.0))


def measure(args: argparse.Namespace, folder: RunFolder, meta: Meta) -> str:
    total = amount_of(args).rounds
    rounds = args.restart_every or total
    measured = Measured()
    for sitting in range(math.ceil(total / rounds)):
        measured.sit(args, folder, meta, sitting, rounds)
    meta["ended"] = now()
    run = Run(measured.answers, total, args.metric, tuple(measured.others_cores))
    return report(run, meta)


def main() -> int:
    args = parse_arguments()
    return run_session("run_acceptance", args, partial(measure, args))


if __name__ == "__main__":
    sys.exit(main())
