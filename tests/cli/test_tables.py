"""`surefoot replay` and `calibrate` on files: no model, no clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from surefoot.cli.program import run
from surefoot.speculation.replay.traces import Trace, write_traces

COSTS = Path(__file__).parents[1] / "data" / "costs" / "gb10-qwen3-4b-4bit.json"
COPIED = Trace(prompt=(*range(40), 7), emitted=(8, *range(9, 39)))


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    path = tmp_path / "traces.jsonl"
    write_traces([COPIED, COPIED], path)
    return path


def test_replay_compares_every_policy_with_plain_and_the_optimum(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replay", "--trace", str(traces), "--costs", str(COSTS)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gb10-qwen3-4b-4bit, 2 traces"
    table = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    assert table == [
        "policy",
        "plain",
        "graded",
        "gated",
        "fixed 7",
        "server-graded",
        "server-gated",
        "goodput",
        "hindsight optimum",
    ]


def test_replay_of_a_copy_costs_what_its_rounds_cost(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """30 tokens after the first: three rounds of 7 + 1 and one of 5 + 1, on this table."""
    arguments = ["replay", "--trace", str(traces), "--costs", str(COSTS), "--policy", "fixed"]
    assert run(arguments) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "| fixed 7 |" in line)
    cost = (3 * 0.045642 + 0.038732) / 0.011566 / 30
    assert row.split("|")[2].strip() == f"{cost:.4f}"
    assert [cell.strip() for cell in row.split("|")[4:7]] == ["8", "52", "52"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the trace files hold no trace"),
        ("{", "traces.jsonl, line 1: the trace is not JSON"),
        ('{"prompt": [], "emitted": [1]}', "prompt is ()"),
    ],
)
def test_a_bad_trace_is_one_line(
    text: str, message: str, traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces.write_text(text)
    assert run(["replay", "--trace", str(traces), "--costs", str(COSTS)]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_calibrate_shows_a_saved_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--load", str(COSTS)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "any context" in lines
    assert "  pipelined plain       11.57 ms   1.00 steps  ########" in lines
    assert any(line.startswith("  verify, width 8 ") and "3.95 steps" in line for line in lines)


def test_calibrate_refuses_a_table_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "costs.json"
    path.write_text('{"name": "x", "source": "y", "buckets": []}')
    assert run(["calibrate", "--load", str(path)]) == 1
    assert str(path) in capsys.readouterr().err
