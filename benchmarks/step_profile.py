"""Where one step's time goes, by ONNX operator.

    python benchmarks/step_profile.py --model FILE [--width 1] [--context 256]

Runs single steps one after the other, first untouched (their median is the truth), then under ONNX
Runtime's profiler, which adds ten to twenty microseconds to every operator: its table is for shares
and counts. Beside `step_cost.py` one of the few that drive the engine itself.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime as ort

from harness.exclusive import exclusive
from harness.tables import markdown_table
from step_cost import describe_machine, tokens_of

STEPS = 128
SETTLING = 5
SHAPED = ("MatMulNBits", "MatMul", "Gemm")
"""Operators shown by the shape of what they give: they differ by layer."""


def open_engine(model: Path, threads: int, profile: Path | None) -> Any:
    from surefoot.config import EngineConfig
    from surefoot.engine import session
    from surefoot.engine.engine import Engine
    from surefoot.loading.open import load_model

    plain = session.session_options

    def options(num_threads: int) -> ort.SessionOptions:
        made = plain(num_threads)
        if profile is not None:
            made.enable_profiling = True
            made.profile_file_prefix = str(profile / "step")
        return made

    session.session_options = options
    try:
        loaded = load_model(model)
        cache = Path.home() / ".cache" / "surefoot" / "graphs"
        config = EngineConfig(num_windows=1, num_threads=threads)
        return Engine(loaded.spec, loaded.weights, loaded.fingerprint, cache, config)
    finally:
        session.session_options = plain


def step_seconds(engine: Any, width: int, context: int) -> float:
    """The median of steps that feed `width` tokens after `context` known ones."""
    from surefoot.core.request import SamplingParams
    from surefoot.core.step import RowPlan, RowSampling, StepPlan

    engine.fill_window(0, context)
    greedy = RowSampling(SamplingParams(temperature=0.0))
    feed = tuple(tokens_of(width, 1))
    times = []
    for step in range(STEPS):
        began = time.perf_counter()
        engine.submit(StepPlan(step, (RowPlan(0, 0, feed, context, 0, greedy),))).result()
        times.append(time.perf_counter() - began)
    return statistics.median(times[SETTLING:])


def by_operator(events: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """Name, milliseconds and calls of one step, the longest first."""
    runs = [event["ts"] for event in events if event.get("name") == "model_run"][SETTLING:]
    spent: dict[str, list[float]] = defaultdict(list)
    for event in events:
        is_kernel = event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
        if is_kernel and event["ts"] >= runs[0]:
            spent[label(event["args"])].append(event["dur"] / 1000)
    table = [
        (name, sum(times) / len(runs), len(times) / len(runs)) for name, times in spent.items()
    ]
    return sorted(table, key=lambda row: -row[1])


def label(args: dict[str, Any]) -> str:
    operator: str = args["op_name"]
    if operator not in SHAPED:
        return operator
    (output,) = args["output_type_shape"]
    (shape,) = output.values()
    return f"{operator} to {shape[-1]}"


def report(args: argparse.Namespace) -> str:
    engine = open_engine(args.model, args.threads, None)
    plain_ms = 1000 * step_seconds(engine, args.width, args.context)
    engine.close()
    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(args.model, args.threads, Path(folder))
        step_seconds(engine, args.width, args.context)
        end: Callable[[], str] = engine._sessions[1]._session.end_profiling
        events = json.loads(Path(end()).read_text())
        engine.close()
    spent = by_operator(events)
    rows = [[name, f"{ms:.2f}", f"{calls:.0f}"] for name, ms, calls in spent]
    total = sum(ms for _, ms, _ in spent)
    head = f"{describe_machine(args.threads)}; {args.model.name}, {args.width} after {args.context}"
    times = f"{plain_ms:.2f} ms a step; under the profiler {total:.2f} ms in operators"
    return f"{head}: {times}\n\n" + markdown_table(["operator", "ms", "calls"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--width", type=int, default=1)
    parser.add_argument("--context", type=int, default=256)
    args = parser.parse_args()
    with exclusive():
        print(report(args))


if __name__ == "__main__":
    main()
