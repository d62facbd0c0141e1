"""Other engines in the same run: same prompts, same token counts, greedy, asked in turn.

    python benchmarks/compare_peers.py --model SmolLM2-135M-Instruct.Q4_1.gguf \\
        --peer-python /path/to/venv/bin/python --onnx FOLDER

Each peer is optional, and left out with a reason where it cannot run. Engines may live in other
virtual environments (`--peer-python`, also as `ENGINE=PATH`). See docs/benchmarking.md.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
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
    OURS_PLAIN,
    TRANSFORMERS,
    Peer,
    peer_field,
)
from harness.peer_report import peer_report
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
    parser.add_argument("--onnx", type=Path, help="folder for onnxruntime-genai")
    parser.add_argument("--openvino", type=Path, help="folder or file (default: --model)")
    parser.add_argument("--transformers", type=Path, help="folder for transformers")
    parser.add_argument("--peers", default=",".join(MODES), help="engines to ask, by commas")
    parser.add_argument("--peer-python", action="append", default=[], metavar="[ENGINE=]PATH")
    parser.add_argument("--program", default=DEFAULT_PROGRAM, help="what `serve` is added to")
    parser.add_argument("--flags", default="", help="flags of our servers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workload", action="append", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--items", type=int)
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--target", type=int, action="append", help="context length of `long`")
    add_run_options(parser, "peers")
    args = parser.parse_args(argv)
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.items = args.items or (1 if args.quick else None)
    args.max_tokens = args.max_tokens or (QUICK_TOKENS if args.quick else None)
    args.target = args.target or [1024]
    return args


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
    common = f"--model {shlex.quote(str(args.model))} --threads {args.threads}"
    return {
        OURS_PLAIN: f"{common} --draft-kind none",
        OURS: f"{common} --draft-kind prompt-lookup",
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


def ask_all(
    workload: str, items: Sequence[Item], args: argparse.Namespace, asker: Asker
) -> list[Answer]:
    order = random.Random(f"{args.seed} {workload}")
    fields: Mapping[str, object] = {**GREEDY, "ignore_eos": True}
    answers = []
    for number in range(args.rounds):
        for item in order.sample(items, len(items)):
            tell(f"{workload}: {item.id}, round {number}, {item.max_tokens} tokens")
            answers.append(asker.answer(Ask(workload, item.id, number, (item,), fields)))
    return answers


def measure(args: argparse.Namespace, folder: RunFolder, meta: Meta) -> str:
    serve = ServeCommand(shlex.split(args.program), shlex.split(args.flags))
    with peer_field(serve, our_servers(args), peers_of(args), folder.path) as field:
        meta["servers"] = [arm.about() for arm in field.arms]
        meta["skipped"] = dict(field.skipped)
        folder.write_meta(meta)
        tell(f"{len(field.arms)} arms; left out: {', '.join(field.skipped) or 'none'}")
        again = (OURS_PLAIN, OURS_AGAIN)
        asker = Asker(field.arms, folder, args.seed, args.pause, again, cold=True)
        answers = {}
        for workload in args.workload or ("plain", "copy"):
            items = sized_items(workload, args, field.arms[0])
            asker.warm(items[:1])
            answers[workload] = ask_all(workload, items, args, asker)
        meta["peak_memory_mib"] = {arm.name: arm.peak_memory_mib() for arm in field.arms}
    meta["ended"] = now()
    return peer_report(answers, field.skipped, meta, args.rounds, asker.others_cores)


def main() -> int:
    args = parse_arguments()
    return run_session("compare_peers", args, partial(measure, args))


if __name__ == "__main__":
    sys.exit(main())
