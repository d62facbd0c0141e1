"""The acceptance benchmark from command line to report: a smoke, whose numbers say nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from harness import workloads

SCRIPT = Path(workloads.__file__).parent.parent / "run_acceptance.py"
TIMEOUT_S = 200.0


def test_a_quick_acceptance_run_starts_asks_restarts_and_reports(
    default_gguf_path: Path, tmp_path: Path
) -> None:
    """(Its lock is one of its own: a real run may be under way on this machine.)"""
    arguments = ["--quick", "--force", "--items", "1", "--max-tokens", "12", "--no-unpriced"]
    run = subprocess.run(
        [
            sys.executable,
            str(SCRIPT),
            *arguments,
            *("--workload", "copy-greedy", "--workload", "plain-sampled"),
            *("--rounds", "2", "--restart-every", "1", "--one-process"),
            f"--flags=--model {default_gguf_path} --ctx 512",
            *("--out", str(tmp_path)),
        ],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert run.returncode == 0, run.stderr
    (folder,) = tmp_path.glob("acceptance-*")
    records = [json.loads(line) for line in (folder / "raw.jsonl").read_text().splitlines()]
    assert [record["sitting"] for record in records] == [0] * 6 + [1] * 6
    assert {record["arm"] for record in records} == {"on", "off", "off again"}
    assert all(record["reply"]["tokens"] == 12 for record in records)
    assert not any(
        record["reply"]["draft"]["proposed"] for record in records if record["arm"] != "on"
    )
    report = (folder / "report.md").read_text()
    assert report == run.stdout.removesuffix("\n")
    assert report.count("**undecided**") == 3
    assert '{"speculation": false}' in report
