"""What one step costs: our engine against llama.cpp, same GGUF file, same run.

    python benchmarks/step_cost.py --model SmolLM2-135M-Instruct.Q4_1.gguf --out DIR

Each engine runs in a process of its own (two thread pools in one process fight); the processes
take turns, block by block, and the other one sleeps. A block is a few steps of one width at one
context length; medians are over all steps of all blocks, ratios are of medians, and the spread is
the range of the blocks' own ratios. Needs surefoot installed, and `llama-cpp-python` for the peer
(left out with a note where it is not).

Unlike the other benchmarks this one drives the engine itself, not the server.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from harness.machine import processor_name

ARMS = ("surefoot", "llama.cpp")
FIRST_TOKEN, LAST_TOKEN = 100, 40000


class Arm(Protocol):
    """An engine under test, holding a KV of `context` tokens."""

    version: str

    def prefill(self, tokens: Sequence[int]) -> None: ...

    def step(self, tokens: Sequence[int], start: int) -> None:
        """Feed `tokens` at `start` and wait for the next token after each of them."""
        ...


class Surefoot:
    """The engine as the scheduler drives it: a synchronous step, argmax inside the graph."""

    def __init__(self, model: Path, capacity: int, threads: int) -> None:
        import onnxruntime

        from surefoot.config import EngineConfig
        from surefoot.core.request import SamplingParams
        from surefoot.core.step import RowPlan, RowSampling, StepPlan
        from surefoot.engine.engine import Engine
        from surefoot.loading.open import load_model

        self.version = f"ONNX Runtime {onnxruntime.__version__}"
        loaded = load_model(model)
        config = EngineConfig(num_windows=1, capacity=capacity, num_threads=threads)
        cache = Path.home() / ".cache" / "surefoot" / "graphs"
        self._engine = Engine(loaded.spec, loaded.weights, loaded.fingerprint, cache, config)
        greedy = RowSampling(SamplingParams(temperature=0.0))
        self._plan: Callable[[Sequence[int], int, int], Any] = lambda feed, start, first: StepPlan(
            0, (RowPlan(0, 0, tuple(feed), start, first, greedy),)
        )

    def prefill(self, tokens: Sequence[int]) -> None:
        for start in range(0, len(tokens), 512):
            chunk = tokens[start : start + 512]
            self._run(self._plan(chunk, start, len(chunk) - 1))

    def step(self, tokens: Sequence[int], start: int) -> None:
        self._run(self._plan(tokens, start, 0))

    def _run(self, plan: Any) -> None:
        (row,) = self._engine.submit(plan).result().rows
        assert row.error is None, row.error


class LlamaCpp:
    """llama.cpp through llama-cpp-python's low-level calls: decode, then read every argmax."""

    def __init__(self, model: Path, capacity: int, threads: int) -> None:
        import llama_cpp
        import numpy

        self._lib, self._numpy = llama_cpp, numpy
        self.version = f"llama-cpp-python {llama_cpp.__version__}"
        self._llama = llama_cpp.Llama(
            str(model),
            n_ctx=capacity,
            n_batch=512,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )
        self._context = self._llama._ctx.ctx
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocab = self._llama.n_vocab()
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)

    def prefill(self, tokens: Sequence[int]) -> None:
        self._lib.llama_memory_clear(self._memory, True)
        for start in range(0, len(tokens), 512):
            chunk = tokens[start : start + 512]
            self._decode(chunk, start, [False] * (len(chunk) - 1) + [True])
            self._argmax(len(chunk) - 1)

    def step(self, tokens: Sequence[int], start: int) -> None:
        self._lib.llama_memory_seq_rm(self._memory, 0, start, -1)
        self._decode(tokens, start, [True] * len(tokens))
        for index in range(len(tokens)):
            self._argmax(index)

    def _decode(self, tokens: Sequence[int], start: int, logits: Sequence[bool]) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = start + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = logits[index]
        assert self._lib.llama_decode(self._context, batch) == 0

    def _argmax(self, index: int) -> int:
        pointer = self._lib.llama_get_logits_ith(self._context, index)
        row = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float * self._vocab)).contents
        return int(self._numpy.frombuffer(row, dtype=self._numpy.float32).argmax())


def tokens_of(count: int, seed: int) -> list[int]:
    import random

    random_numbers = random.Random(seed)
    return [random_numbers.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(count)]


def serve_worker(args: argparse.Namespace) -> None:
    """Answer block requests on standard input until it closes."""
    kinds: dict[str, Callable[[Path, int, int], Arm]] = {
        "surefoot": Surefoot,
        "llama.cpp": LlamaCpp,
    }
    arm = kinds[args.worker](args.model, max(args.contexts) + 1024, args.threads)
    print(json.dumps({"version": arm.version}), flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        print(json.dumps({"seconds": _block(arm, ask)}), flush=True)


def _block(arm: Arm, ask: dict[str, int]) -> list[float]:
    context, width = ask["context"], ask["width"]
    if ask.get("prefill"):
        tokens = tokens_of(width, context)
        began = time.perf_counter()
        arm.prefill(tokens)
        return [time.perf_counter() - began]
    if ask.get("load"):
        arm.prefill(tokens_of(context, context))
        return []
    fed = tokens_of(width, width)
    seconds = []
    for _ in range(ask["steps"] + 2):
        began = time.perf_counter()
        arm.step(fed, context)
        seconds.append(time.perf_counter() - began)
    return seconds[2:]


class Worker:
    """One arm in a process of its own."""

    def __init__(self, arm: str, args: argparse.Namespace) -> None:
        command = [
            sys.executable,
            __file__,
            "--worker",
            arm,
            "--model",
            str(args.model),
            "--threads",
            str(args.threads),
            "--contexts",
            *map(str, args.contexts),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.version: str = self._read()["version"]

    def ask(self, **block: int) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(block) + "\n")
        self._process.stdin.flush()
        return list(self._read()["seconds"])

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a worker died; see its message above")
        return dict(json.loads(line))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


Key = tuple[str, int, int]


def measure(workers: dict[str, Worker], args: argparse.Namespace) -> list[dict[str, Any]]:
    """All blocks, arms alternating; one record a block."""
    records = []
    for context in args.contexts:
        for worker in workers.values():
            worker.ask(context=context, width=0, load=1)
        for round_number in range(args.rounds):
            for width in args.widths:
                for arm in _order(workers, round_number):
                    seconds = workers[arm].ask(context=context, width=width, steps=args.steps)
                    records.append(
                        {
                            "kind": "step",
                            "arm": arm,
                            "context": context,
                            "width": width,
                            "round": round_number,
                            "seconds": seconds,
                        }
                    )
    for round_number in range(args.rounds):
        for arm in _order(workers, round_number):
            seconds = workers[arm].ask(context=0, width=args.prefill, prefill=1)
            records.append(
                {
                    "kind": "prefill",
                    "arm": arm,
                    "context": 0,
                    "width": args.prefill,
                    "round": round_number,
                    "seconds": seconds,
                }
            )
    return records


def _order(workers: dict[str, Worker], round_number: int) -> list[str]:
    arms = list(workers)
    return arms if round_number % 2 == 0 else arms[::-1]


def table(records: list[dict[str, Any]], arms: Sequence[str]) -> str:
    """Medians in milliseconds and the ratio to the peer with the range over rounds."""
    lines = [
        "| what | " + " | ".join(f"{arm} ms" for arm in arms) + " | ratio (range) |",
        "|---|" + "---|" * (len(arms) + 1),
    ]
    for kind, context, width in dict.fromkeys(
        (r["kind"], r["context"], r["width"]) for r in records
    ):
        rows = [
            r for r in records if (r["kind"], r["context"], r["width"]) == (kind, context, width)
        ]
        medians = {
            arm: statistics.median(s for r in rows if r["arm"] == arm for s in r["seconds"])
            for arm in arms
        }
        what = f"prefill {width}" if kind == "prefill" else f"context {context}, width {width}"
        cells = [f"{1000 * medians[arm]:.1f}" for arm in arms]
        lines.append(f"| {what} | {' | '.join(cells)} | {_ratio(rows, medians, arms)} |")
    return "\n".join(lines)


def _ratio(rows: list[dict[str, Any]], medians: dict[str, float], arms: Sequence[str]) -> str:
    if len(arms) < 2:
        return "-"
    by_round: dict[int, dict[str, float]] = {}
    for row in rows:
        by_round.setdefault(row["round"], {})[row["arm"]] = statistics.median(row["seconds"])
    ratios = [pair[arms[0]] / pair[arms[1]] for pair in by_round.values()]
    whole = medians[arms[0]] / medians[arms[1]]
    return f"{whole:.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def describe_machine(threads: int) -> str:
    return f"{processor_name()}, {threads} threads, {platform.system()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 2, 3, 4, 8])
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--out", type=Path, help="a folder that must not exist yet")
    parser.add_argument("--worker", choices=ARMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        serve_worker(args)
        return
    if args.out and args.out.exists():
        parser.error(f"--out is {args.out}, which exists; nothing is measured to be thrown away")
    arms = ["surefoot"]
    try:
        import llama_cpp  # noqa: F401

        arms.append("llama.cpp")
    except ImportError:
        print("llama-cpp-python is not installed: the peer is left out", file=sys.stderr)
    workers = {arm: Worker(arm, args) for arm in arms}
    records = measure(workers, args)
    for worker in workers.values():
        worker.close()
    versions = ", ".join(f"{arm}: {worker.version}" for arm, worker in workers.items())
    head = f"{describe_machine(args.threads)}; {args.model.name}\n{versions}"
    report = f"{head}\n\n{table(records, arms)}\n"
    print(report)
    if args.out:
        args.out.mkdir(parents=True)
        (args.out / "steps.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        (args.out / "steps.md").write_text(report)


if __name__ == "__main__":
    main()
