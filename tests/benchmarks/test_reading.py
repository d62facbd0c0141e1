"""Runs read back are the runs that were made."""

from __future__ import annotations

from pathlib import Path

from harness import acceptance
from harness.acceptance_report import report
from harness.arms import OFF, ON
from harness.asking import Answer, Asker
from harness.reading import read_meta, read_runs
from harness.runs import RunFolder
from support.benchmark_fakes import CountingEngine, arm, served

META = {
    "machine": {"processor": "CPU", "cores": 2, "memory_gib": 8, "system": "s", "python": "3"},
    "packages": {},
    "began": "then",
    "arguments": {"seed": 0},
    "busy_cores_before": None,
    "servers": [],
}


def made_run(root: Path, workload: str, sittings: int = 1) -> tuple[RunFolder, list[Answer]]:
    folder = RunFolder(root, "acceptance")
    folder.write_meta(META)
    amount = acceptance.Amount(rounds=2, items=2, max_tokens=9, targets=(3000,))
    with served(CountingEngine()) as on, served(CountingEngine()) as off:
        arms = [arm(ON, on), arm(OFF, off)]
        asker = Asker(arms, folder, seed=0, pause_s=0.0)
        asks = acceptance.asks_of(workload, amount, arms, seed=0)
        answers = []
        for sitting in range(sittings):
            of_these = acceptance.of_sitting(asks, sitting, amount.rounds // sittings)
            answers += acceptance.run_workload(asker, of_these, (), lambda text: None)
        return folder, answers


def replies_of(answers: list[Answer]) -> list[tuple[object, ...]]:
    return [(a.ask.question, a.ask.variant, dict(sorted(a.replies.items()))) for a in answers]


def test_a_run_is_read_back_whole(tmp_path: Path) -> None:
    for workload in (acceptance.PLAIN_SAMPLED, acceptance.TWO_STREAMS):
        folder, answers = made_run(tmp_path, workload)
        read = read_runs([folder.path], "server")
        assert read.rounds == 2
        assert replies_of(list(read.answers[workload])) == replies_of(answers)


def test_the_text_to_copy_is_known_again(tmp_path: Path) -> None:
    folder, answers = made_run(tmp_path, acceptance.LONG)
    (read,) = read_runs([folder.path], "server").answers.values()
    expected = {answer.ask.question: answer.ask.items[0].expected for answer in answers}
    assert {answer.ask.question: answer.ask.items[0].expected for answer in read} == expected


def test_several_runs_are_read_as_one_with_more_rounds(tmp_path: Path) -> None:
    folders = [made_run(tmp_path, acceptance.PLAIN_GREEDY)[0].path for _ in range(2)]
    run = read_runs(folders, "server")
    assert run.rounds == 4
    assert {a.ask.round for a in run.answers[acceptance.PLAIN_GREEDY]} == {0, 1, 2, 3}
    assert "run-2.seed=0" not in report(run, read_meta(folders[:1]))
    assert read_meta(folders)["arguments"] == {"run-1.seed": 0, "run-2.seed": 0}


def test_sittings_are_told_apart_within_runs_and_between_them(tmp_path: Path) -> None:
    workload = acceptance.PLAIN_GREEDY
    folders = [made_run(tmp_path, workload, sittings)[0].path for sittings in (2, 1)]
    (answers,) = read_runs(folders, "server").answers.values()
    told = [(a.ask.round, a.ask.sitting) for a in answers]
    assert sorted(set(told)) == [(0, 0), (1, 1), (2, 2), (3, 2)]
    blocks = [answer.block("server") for answer in answers]
    assert [block.sitting for block in blocks if block] == [sitting for _, sitting in told]


def test_a_block_cut_short_is_left_out(tmp_path: Path) -> None:
    folder, answers = made_run(tmp_path, acceptance.PLAIN_GREEDY)
    raw = folder.path / "raw.jsonl"
    lines = raw.read_text().splitlines()
    raw.write_text("\n".join(lines[:-1]) + "\n")
    read = read_runs([folder.path], "server").answers[acceptance.PLAIN_GREEDY]
    assert replies_of(list(read)) == replies_of(answers[:-1])


def test_an_arm_that_one_run_lacks_is_left_out(tmp_path: Path) -> None:
    both, one = (made_run(tmp_path, acceptance.PLAIN_GREEDY)[0].path for _ in range(2))
    raw = one / "raw.jsonl"
    kept = [line for line in raw.read_text().splitlines() if '"arm": "off again"' not in line]
    raw.write_text("\n".join(kept) + "\n")
    answers = read_runs([both, one], "server").answers[acceptance.PLAIN_GREEDY]
    assert {frozenset(answer.replies) for answer in answers} == {frozenset({ON, OFF})}
