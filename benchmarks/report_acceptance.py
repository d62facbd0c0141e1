"""The report of acceptance runs made before: of one cut short, or of several as one.

    python benchmarks/report_acceptance.py results/acceptance-A results/acceptance-B > report.md

Runs belong together only if machine, build, model and flags were the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.acceptance_report import report
from harness.reading import read_meta, read_runs


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="folders of run_acceptance.py")
    parser.add_argument("--metric", choices=("server", "client"), default="server")
    args = parser.parse_args()
    print(report(read_runs(args.runs, args.metric), read_meta(args.runs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
