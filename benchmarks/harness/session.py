"""What every benchmark script does around its measurement: options, lock, folder, report."""

from __future__ import annotations

import argparse
import http.client
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness import machine
from harness.arms import DEFAULT_PROGRAM, OFF, ON, ServeCommand
from harness.client import HttpError, NotReadyError
from harness.exclusive import OverlapError, exclusive
from harness.runs import RunFolder
from harness.sse import StreamError

RESULTS = Path(__file__).parent.parent / "results"
LOCAL_ARGUMENTS = (
    "out",
    "program",
    "model",
    "fast_model",
    "onnx",
    "openvino",
    "transformers",
    "peer_python",
)
"""Arguments that may name folders of this machine; reports leave them out."""

Meta = dict[str, Any]
Measure = Callable[[RunFolder, Meta], str]


def new_parser(description: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_run_options(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("--seed", type=int, default=0, help="of the order of arms and questions")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds before each request")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the run's folder goes")
    parser.add_argument("--name", default=name, help="how the folder's name begins")
    parser.add_argument("--force", action="store_true", help="run on a busy machine too")
    parser.add_argument("--quick", action="store_true", help="a look; decides nothing")


def add_server_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("servers")
    group.add_argument("--program", default=DEFAULT_PROGRAM, help="what `serve` is added to")
    group.add_argument("--flags", default="", help="flags of every server")
    group.add_argument("--on-flags", default="--draft-kind prompt-lookup")
    group.add_argument("--off-flags", default="--draft-kind none")
    group.add_argument("--on-url", help="a running server instead of a new one")
    group.add_argument("--off-url")
    group.add_argument("--arm", action="append", default=[], metavar="NAME=FLAGS")


def serve_command(args: argparse.Namespace) -> ServeCommand:
    return ServeCommand(shlex.split(args.program), shlex.split(args.flags))


def server_arms(args: argparse.Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """Flags by arm, and the URLs of those that run already."""
    flags = {ON: args.on_flags, OFF: args.off_flags}
    for extra in args.arm:
        name, _, text = extra.partition("=")
        flags[name] = text
    urls = {ON: args.on_url, OFF: args.off_url}
    return flags, {name: url for name, url in urls.items() if url}


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def run_session(
    benchmark: str, args: argparse.Namespace, measure: Measure, packages: Sequence[str] = ()
) -> int:
    """Measure alone on a quiet machine, into a new folder. The exit status."""
    try:
        with exclusive():
            busy = machine.refuse_if_busy(1e9 if args.force else machine.BUSY_CORES)
            folder = RunFolder(args.out, args.name)
            tell(f"results go to {folder.path}")
            meta: Meta = {
                "benchmark": benchmark,
                "began": now(),
                "arguments": {k: v for k, v in vars(args).items() if k not in LOCAL_ARGUMENTS},
                "machine": machine.describe(),
                "packages": machine.package_versions(["surefoot", "onnxruntime", *packages]),
                "busy_cores_before": busy,
                "servers": [],
            }
            folder.write_meta(meta)
            text = measure(folder, meta)
            folder.write_meta(meta)
            print(folder.write_report(text).read_text(encoding="utf-8"))
    except (machine.BusyError, OverlapError, NotReadyError) as error:
        tell(f"not measured: {error}")
        return 1
    except (HttpError, StreamError, OSError, http.client.HTTPException) as error:
        tell(f"cut short by a server or the network: {error}")
        return 1
    return 0
