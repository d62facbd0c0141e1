"""A server over the scripted engine as a process, for floods from outside:

    python tests/support/scripted_server.py --port 8080

On SIGTERM it ends every row, runs the scheduler's `check()`, and prints its account of the
requests it accepted as one line of JSON. Its exit status is 0 if all of that was right.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent / "benchmarks")]

from support.flood_runs import assert_clean, flooded_script  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: asked.set())
    with flooded_script(parser.parse_args().port) as live:
        print(live.url, flush=True)
        asked.wait()
        assert_clean(live)
        summary = live.account.summary()
    print(json.dumps(summary | {"check": "clean"}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
