"""`surefoot replay` over the recorded replies, on the recorded tables of another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from surefoot.cli.program import run
from surefoot.speculation.replay.traces import Trace, write_traces

DATA = Path(__file__).parents[1] / "data"
TABLES = sorted((DATA / "costs").glob("*.json"))
RECORDED = sorted((DATA / "traces").glob("*.jsonl"))


def replayed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    """The cells of the printed tables' rows, without their heads."""
    assert run(["replay", *arguments]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return [row for row in cells if row[0] != "policy"]


def test_a_table_is_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reply goes on as the prompt did, 2 to 13, and ends with 14. GATED lands 2 of 2, then 7
    of 7 (widths 3 and 8), and the last token takes a synchronous step."""
    path = tmp_path / "copy.jsonl"
    write_traces([Trace(prompt=(*range(1, 14), 1), emitted=tuple(range(2, 15)))], path)
    table = DATA / "costs" / "gb10-qwen3-1.7b-4bit.json"
    rows = replayed(capsys, "--trace", str(path), "--costs", str(table), "--policy", "gated")
    plain = 0.006343 / 0.005174 + 11
    gated = (0.009085 + 0.02025 + 0.006343) / 0.005174
    assert rows[0][:3] == ["plain", f"{plain / 12:.4f}", "+0.0 %"]
    assert rows[1] == [
        "gated",
        f"{gated / 12:.4f}",
        f"{100 * (plain / gated - 1):+.1f} %",
        "2",
        "9",
        "9",
        "100.0 %",
        "0",
    ]


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
def test_no_policy_beats_hindsight_and_all_are_held_against_plain(
    table: Path, recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = replayed(capsys, "--trace", str(recorded), "--costs", str(table))
    costs = {row[0]: float(row[1]) for row in rows}
    assert next(iter(costs)) == "plain"
    assert len(costs) == 8
    # GOODPUT's proposals run on past the end of the context, which hindsight's lookups do not.
    del costs["goodput"]
    assert min(costs.values()) == costs["hindsight optimum"] < costs["plain"]


def test_several_tables_and_files_go_in_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [word for path in RECORDED for word in ("--trace", str(path))]
    arguments += [word for path in TABLES[:2] for word in ("--costs", str(path))]
    assert run(["replay", *arguments, "--policy", "graded"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if "traces" in line]
    assert heads == [f"{path.stem}, 18 traces" for path in TABLES[:2]]
