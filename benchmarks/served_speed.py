"""What serving costs: tokens per second over HTTP against the bare engine's, one and four streams.

    python benchmarks/served_speed.py --model SmolLM2-135M-Instruct.Q4_1.gguf --out DIR

The bare engine is the pipelined loop with nothing around it: one step submitted ahead, tokens read
and dropped. The server runs without speculation, streams are read by a client of its own. The arms
take turns; speeds are sums over the streams of a turn, from each one's first token to its last.
Beside `step_cost.py` the only benchmark that drives the engine itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.exclusive import exclusive
from harness.servers import ServerProcess
from step_cost import describe_machine, tokens_of

STREAMS = (1, 4)
PROMPT = "Tell me a long story about a lighthouse keeper who dislikes the sea."
PROMPT_TOKENS = 48


class BareEngine:
    """Rows of the pipelined loop, all of one length."""

    def __init__(self, model: Path, threads: int) -> None:
        from surefoot.config import EngineConfig
        from surefoot.core.request import SamplingParams
        from surefoot.core.step import FromStep, RowPlan, RowSampling, StepPlan
        from surefoot.engine.engine import Engine
        from surefoot.loading.open import load_model

        loaded = load_model(model)
        config = EngineConfig(num_windows=max(STREAMS), num_threads=threads)
        cache = Path.home() / ".cache" / "surefoot" / "graphs"
        self._engine = Engine(loaded.spec, loaded.weights, loaded.fingerprint, cache, config)
        greedy = RowSampling(SamplingParams(temperature=0.0))

        def plan(step: int, rows: int, start: int) -> Any:
            feed = FromStep(step - 1) if start else tuple(tokens_of(PROMPT_TOKENS, 1))
            first = 0 if start else PROMPT_TOKENS - 1
            return StepPlan(
                step, tuple(RowPlan(row, row, feed, start, first, greedy) for row in range(rows))
            )

        self._plan: Callable[[int, int, int], Any] = plan

    def tokens_per_second(self, rows: int, num_tokens: int) -> float:
        """All rows' tokens after the first, over the time from the first to the last."""
        self._engine.submit(self._plan(0, rows, 0)).result()
        began = time.perf_counter()
        handle = self._engine.submit(self._plan(1, rows, PROMPT_TOKENS))
        for step in range(2, num_tokens):
            ahead = self._engine.submit(self._plan(step, rows, PROMPT_TOKENS + step - 1))
            handle.result()
            handle = ahead
        handle.result()
        return rows * (num_tokens - 1) / (time.perf_counter() - began)

    def close(self) -> None:
        self._engine.close()


def served(server: ServerProcess, streams: int, num_tokens: int) -> float:
    """The sum of the streams' own speeds, by the client's clock."""
    body = {
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    with ThreadPoolExecutor(streams) as pool:
        replies = list(pool.map(lambda _: server.endpoint.stream_chat(body), range(streams)))
    return sum((reply.tokens - 1) / reply.client_decode_s for reply in replies)


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "surefoot", "serve", "--port", "{port}"]
    command += ["-m", str(args.model), "--threads", str(args.threads), "--draft-kind", "none"]
    bare = BareEngine(args.model, args.threads)
    records = []
    with ServerProcess("served", command, Path(os.devnull)) as server:
        server.wait_ready()
        for streams in STREAMS:
            served(server, streams, 16)
            bare.tokens_per_second(streams, 16)
        for turn in range(args.rounds):
            arms = [("bare", bare.tokens_per_second), ("served", lambda s, n: served(server, s, n))]
            for streams in STREAMS:
                for arm, speed in arms if turn % 2 == 0 else arms[::-1]:
                    value = speed(streams, args.tokens)
                    records.append({"arm": arm, "streams": streams, "turn": turn, "tps": value})
    bare.close()
    return records


def table(records: list[dict[str, Any]]) -> str:
    def speeds(arm: str, streams: int) -> list[float]:
        return [r["tps"] for r in records if (r["arm"], r["streams"]) == (arm, streams)]

    lines = ["| arm | streams | tokens/s (range) | of one stream |", "|---|---:|---:|---:|"]
    for arm in ("bare", "served"):
        one = statistics.median(speeds(arm, 1))
        for streams in STREAMS:
            values = speeds(arm, streams)
            middle = statistics.median(values)
            lines.append(
                f"| {arm} | {streams} | {middle:.1f} ({min(values):.1f}-{max(values):.1f}) "
                f"| {middle / one:.2f} |"
            )
    for streams in STREAMS:
        pairs = zip(speeds("served", streams), speeds("bare", streams), strict=True)
        ratios = sorted(a / b for a, b in pairs)
        lines.append(
            f"\nserved of bare, {streams} streams: {statistics.median(ratios):.3f} "
            f"({ratios[0]:.3f}-{ratios[-1]:.3f})"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--out", type=Path, help="a folder that must not exist yet")
    args = parser.parse_args()
    if args.out and args.out.exists():
        parser.error(f"--out is {args.out}, which exists; nothing is measured to be thrown away")
    with exclusive():
        records = measure(args)
    report = f"{describe_machine(args.threads)}; {args.model.name}\n\n{table(records)}\n"
    print(report)
    if args.out:
        args.out.mkdir(parents=True)
        (args.out / "raw.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        (args.out / "report.md").write_text(report)


if __name__ == "__main__":
    main()
