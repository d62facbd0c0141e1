"""Other engines in the same run: same prompts, same token counts, greedy, asked in turn.

    python benchmarks/compare_peers.py --model SmolLM2-135M-Instruct.Q4_1.gguf \\
        --onnx FOLDER --transformers FOLDER --venv llama.cpp=/path/to/bin/python

Each peer is optional, and left out with a reason where it cannot run. Engines may live in other
virtual environments: `--venv ENGINE=PYTHON`, or `PEER_VENVS=ENGINE=PYTHON,...` in the environment
(a flag wins). `peers/export_default_model.py` makes the folders. See docs/peers.md.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness import acceptance
from harness.arms import DEFAULT_PROGRAM, Arm, ServeCommand
from harness.asking import GREEDY, Answer, Ask, Asker
from harness.client import chat_body
from harness.peer_arms import (
    LLAMA,
    LLAMA_PYTHON,
    MODES,
    ONNX_GENAI,
    OPENVINO,
    OURS,
    OURS_AGAIN,
    OURS_ONNX,
    OURS_ONNX_PLAIN,
    OURS_PLAIN,
    TRANSFORMERS,
    Peer,
    never_asked,
    peer_field,
)
from harness.peer_plots import draw_peers
from harness.peer_report import peer_report, speed_blocks
from harness.runs import RunFolder
from harness.session import Meta, add_run_options, new_parser, now, run_session, tell
from harness.workloads import Item

MIN_REPLY = 16
QUICK_TOKENS = 24
WORKLOADS = ("plain", "copy", "long")


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument(
        "--model", type=Path, required=True, help="GGUF file for ours and llama.cpp"
    )
    parser.add_argument("--fast-model", type=Path, help="llama.cpp's fastest form of it, as Q4_0")
    parser.add_argument("--onnx", type=Path, help="folder for onnxruntime-genai, and for ours")
    parser.add_argument("--openvino", type=Path, help="folder or file (default: --model)")
    parser.add_argument("--transformers", type=Path, help="folder for transformers")
    parser.add_argument("--peers", default=",".join(MODES), help="engines to ask, by commas")
    parser.add_argument(
        "--venv", "--peer-python", dest="peer_python", action="append", default=[],
        metavar="[ENGINE=]PYTHON", help="interpreter of an engine, or of all others",
    )  # fmt: skip
    parser.add_argument("--program", default=DEFAULT_PROGRAM, help="what `serve` is added to")
    parser.add_argument("--flags", default="", help="flags of our servers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workload", action="append", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--items", type=int)
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--minutes", type=float, help="how long to ask, starting not included")
    parser.add_argument("--target", type=int, action="append", help="context length of `long`")
    add_run_options(parser, "peers")
    args = parser.parse_args(argv)
    args.peer_python = [*environment_venvs(), *args.peer_python]
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.items = args.items or (1 if args.quick else None)
    args.max_tokens = args.max_tokens or (QUICK_TOKENS if args.quick else None)
    args.target = args.target or [1024]
    return args


def environment_venvs() -> list[str]:
    return [entry for entry in os.environ.get("PEER_VENVS", "").split(",") if entry]


def interpreter_for(engine: str, given: Sequence[str]) -> str:
    """The last entry that names this engine, else the last that names none, else our own."""
    chosen = sys.executable
    for entry in given:
        if "=" not in entry:
            chosen = entry
    for entry in given:
        name, separator, path = entry.partition("=")
        if separator and name == engine:
            chosen = path
    return chosen


def peers_of(args: argparse.Namespace) -> list[Peer]:
    models = {
        LLAMA: args.model,
        LLAMA_PYTHON: args.model,
        ONNX_GENAI: args.onnx,
        OPENVINO: args.openvino or args.model,
        TRANSFORMERS: args.transformers,
    }
    peers = []
    for engine in args.peers.split(","):
        python = interpreter_for(engine, args.peer_python)
        peers.append(Peer(engine, models[engine], python, args.threads))
        if engine == LLAMA and args.fast_model:
            label = f" {args.fast_model.stem.rpartition('.')[2]}"
            peers.append(Peer(engine, args.fast_model, python, args.threads, label))
    return peers


def our_servers(args: argparse.Namespace) -> dict[str, str]:
    """Flags by arm: off and on, and both again on the ONNX folder that the peer runs."""
    pairs = [((OURS_PLAIN, OURS), args.model)]
    pairs += [((OURS_ONNX_PLAIN, OURS_ONNX), args.onnx)] if args.onnx else []
    return {
        name: f"--model {shlex.quote(str(model))} --threads {args.threads} --draft-kind {kind}"
        for names, model in pairs
        for name, kind in zip(names, ("none", "prompt-lookup"), strict=True)
    }


def sized_items(workload: str, args: argparse.Namespace, ours: Arm) -> list[Item]:
    """The prompts, each with the length of our own plain reply as its token count."""
    amount = acceptance.Amount(1, args.items, args.max_tokens, tuple(args.target))
    items = (
        amount.cut(acceptance.long_items(amount, ours))
        if workload == acceptance.LONG
        else amount.prompts(workload)
    )
    sized = []
    for item in items:
        reply = ours.endpoint.stream_chat(chat_body(item.messages, item.max_tokens, GREEDY))
        sized.append(replace(item, max_tokens=max(reply.tokens, MIN_REPLY)))
    return sized


def blocks_to_ask(
    items: Mapping[str, Sequence[Item]], args: argparse.Namespace
) -> list[tuple[str, Item, int]]:
    """Rounds outermost, the questions of all workloads shuffled within each: a run that ends early
    has asked about as much of each."""
    order = random.Random(args.seed)
    pairs = [(name, item) for name, group in items.items() for item in group]
    return [
        (name, item, number)
        for number in range(args.rounds)
        for name, item in order.sample(pairs, len(pairs))
    ]


def ask_all(
    items: Mapping[str, Sequence[Item]], args: argparse.Namespace, asker: Asker
) -> dict[str, list[Answer]]:
    """No block is begun that would end after `--minutes`, as long as the longest so far."""
    fields: Mapping[str, object] = {**GREEDY, "ignore_eos": True}
    answers: dict[str, list[Answer]] = {name: [] for name in items}
    began = time.monotonic()
    longest_s = 0.0
    blocks = blocks_to_ask(items, args)
    for count, (workload, item, number) in enumerate(blocks):
        started = time.monotonic()
        if args.minutes and started - began + longest_s > 60.0 * args.minutes:
            tell(f"out of time: {len(blocks) - count} of {len(blocks)} blocks are not asked")
            break
        tell(f"{workload}: {item.id}, round {number}, {item.max_tokens} tokens")
        answers[workload].append(asker.answer(Ask(workload, item.id, number, (item,), fields)))
        longest_s = max(longest_s, time.monotonic() - started)
    return {name: group for name, group in answers.items() if group}


def whole_rounds(answers: Mapping[str, Sequence[Answer]]) -> int:
    """How often every question was asked."""
    counts = Counter((n, answer.ask.question) for n, group in answers.items() for answer in group)
    return min(counts.values(), default=0)


def measure(args: argparse.Namespace, folder: RunFolder, meta: Meta) -> str:
    serve = ServeCommand(shlex.split(args.program), shlex.split(args.flags))
    with peer_field(serve, our_servers(args), peers_of(args), folder.path) as field:
        meta["servers"] = [arm.about() for arm in field.arms]
        skipped = {**field.skipped, **never_asked()}
        meta["skipped"] = skipped
        folder.write_meta(meta)
        tell(f"{len(field.arms)} arms; left out: {', '.join(skipped) or 'none'}")
        again = (OURS_PLAIN, OURS_AGAIN)
        asker = Asker(field.arms, folder, args.seed, args.pause, again, cold=True)
        workloads = args.workload or ("plain", "copy")
        items = {name: sized_items(name, args, field.arms[0]) for name in workloads}
        asker.warm(items[workloads[0]][:1])
        answers = ask_all(items, args, asker)
        meta["blocks_asked"] = {name: len(group) for name, group in answers.items()}
        meta["peak_memory_mib"] = {arm.name: arm.peak_memory_mib() for arm in field.arms}
    meta["ended"] = now()
    plots = draw_peers(folder.path, {n: speed_blocks(group) for n, group in answers.items()})
    rounds = whole_rounds(answers)
    return peer_report(answers, skipped, meta, rounds, asker.others_cores, plots)


def main() -> int:
    args = parse_arguments()
    return run_session("compare_peers", args, partial(measure, args))


if __name__ == "__main__":
    sys.exit(main())
