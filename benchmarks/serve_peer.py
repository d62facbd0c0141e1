"""Serve another engine over HTTP, for compare_peers.py; run by the interpreter that has it.

    python benchmarks/serve_peer.py --engine xllamacpp --mode ngram-mod --model FILE --port 9001

`--check` only tells the engine's version, and fails where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from importlib.metadata import version
from pathlib import Path

from peers.engine import MODULES, open_engine

NATIVE = "xllamacpp"
IMPORTS = {
    NATIVE: "xllamacpp",
    "llama-cpp-python": "llama_cpp",
    "onnxruntime-genai": "onnxruntime_genai",
    "openvino-genai": "openvino_genai",
    "transformers": "transformers",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=[NATIVE, *MODULES], required=True)
    parser.add_argument("--mode", default="plain")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.check:
        importlib.import_module(IMPORTS[args.engine])
        print(version(args.engine))
        return 0
    if args.engine == NATIVE:
        from peers import llama_cpp_server

        llama_cpp_server.serve(args.mode, args.model, args.threads, args.port)
    else:
        from peers import serving

        engine = open_engine(args.engine, args.mode, args.model, args.threads)
        print(engine.version, flush=True)
        serving.make_server(engine, args.port).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
