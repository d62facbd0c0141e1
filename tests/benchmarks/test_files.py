"""Prompts, tables, locks and folders."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from harness import workloads
from harness.exclusive import OverlapError, exclusive
from harness.machine import busy_ticks, name_from, process_ticks
from harness.runs import RunFolder
from harness.servers import shown_command, without_folders
from harness.sse import Draft
from harness.tables import markdown_table

BENCHMARKS = Path(workloads.__file__).parent.parent


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("plain", 8),
        ("copy", 8),
        ("plain_heldout", 16),
        ("copy_heldout", 16),
        ("plain_fresh", 12),
        ("copy_fresh", 12),
    ],
)
def test_each_prompt_file_holds_distinct_chats(name: str, count: int) -> None:
    items = workloads.load_items(name)
    assert len({item.id for item in items}) == count
    assert len({item.messages[-1]["content"] for item in items}) == count
    assert all(item.messages[-1]["role"] == "user" for item in items)


def test_heldout_prompts_are_others() -> None:
    for kind in ("plain", "copy"):
        tuned, kept, fresh = (
            {item.messages[0]["content"] for item in workloads.load_items(f"{kind}{part}")}
            for part in ("", "_heldout", "_fresh")
        )
        assert not tuned & kept
        assert not fresh & (tuned | kept)


def test_a_limit_takes_the_first_items() -> None:
    assert [item.id for item in workloads.load_items("plain", 2)] == ["rainbow", "rent"]


def test_chosen_items_come_in_the_order_asked() -> None:
    items = workloads.load_items("plain")
    assert [item.id for item in workloads.chosen(items, ["story", "rent"])] == ["story", "rent"]
    assert workloads.chosen(items, None) == items


def test_a_long_prompt_ends_with_the_paragraph_and_the_task() -> None:
    task = workloads.load_long_task()
    item = task.item(1024, 1, 50)
    content = item.messages[0]["content"]
    assert content.startswith(task.filler[:50] + "\n\n")
    assert content.endswith(f"{task.paragraphs[1]}\n\n{task.task}")
    assert (item.id, item.expected, item.max_tokens) == ("long-1024-1", task.paragraphs[1], 128)


@pytest.mark.parametrize("chars_per_token", [2.5, 4.0, 5.5])
@pytest.mark.parametrize("target", [1024, 4096])
def test_filler_is_fitted_below_the_target_and_near_it(chars_per_token: float, target: int) -> None:
    def count(chars: int) -> int:
        return 120 + int(chars / chars_per_token)

    chars = workloads.fit_filler(target, count, max_chars=10**6)
    assert 0.97 * target <= count(chars) <= target


def test_filler_that_runs_out_is_used_whole() -> None:
    assert workloads.fit_filler(10_000, lambda chars: 100 + chars // 4, max_chars=8000) == 8000


@pytest.mark.parametrize(
    ("reply", "share"), [("abcd", 1.0), (' "abcd" and more', 1.0), ("abXd", 0.5), ("", 0.0)]
)
def test_how_much_of_a_text_was_copied(reply: str, share: float) -> None:
    assert workloads.longest_shared_share(reply, "abcd") == share


def test_a_table_is_aligned_and_escaped() -> None:
    table = markdown_table(["name", "value"], [["a|b", 1.25], ["c", "x"]])
    assert table.splitlines() == [
        "| name | value |",
        "| ---- | ----: |",
        "| a\\|b |   1.2 |",
        "| c    |     x |",
    ]
    with pytest.raises(ValueError, match="zip"):
        markdown_table(["one"], [["a", "b"]])


def test_a_second_benchmark_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with exclusive(lock), pytest.raises(OverlapError, match="another benchmark"), exclusive(lock):
        raise AssertionError("two at once")
    with exclusive(lock):
        assert lock.read_text().isdigit()


def test_a_run_never_touches_another_runs_folder(tmp_path: Path) -> None:
    folders = [RunFolder(tmp_path, "name") for _ in range(3)]
    assert len({folder.path for folder in folders}) == 3
    for number, folder in enumerate(folders):
        folder.append({"number": number, "draft": Draft(3, 2, 1)})
    lines = [(folder.path / "raw.jsonl").read_text() for folder in folders]
    assert [json.loads(line)["number"] for line in lines] == [0, 1, 2]
    assert json.loads(lines[0])["draft"] == {"proposed": 3, "accepted": 2, "rounds": 1}


def test_processor_times_are_read_from_the_kernel() -> None:
    assert busy_ticks("cpu  10 1 5 900 3 2 1 4 0 0\ncpu0 1 1 1 1") == 23
    assert busy_ticks("") is None
    assert process_ticks("7 (a (b) c) S 1 7 7 0 -1 0 0 0 0 0 31 12 0 0 20 0") == 43
    assert process_ticks("") == 0


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("model name\t: Some CPU\nflags\t\t: fpu avx2 avx512_vnni\n", "Some CPU (avx512_vnni)"),
        ("model name\t: Some CPU\nflags\t\t: fpu sse2\n", "Some CPU"),
        ("Features\t: fp asimddp i8mm\n", "aarch64 (i8mm)"),
        ("", "aarch64"),
    ],
)
def test_a_processor_is_named_with_its_instructions(cpuinfo: str, name: str) -> None:
    assert name_from(cpuinfo, "aarch64") == name


def test_a_shown_command_names_no_folder() -> None:
    command = ["/home/me/bin/python", "-m", "surefoot", "--model", "/data/x y.gguf"]
    assert shown_command(command) == "python -m surefoot --model 'x y.gguf'"


def test_settings_of_a_server_name_no_folder() -> None:
    told = {"model_path": "/home/x/m.gguf", "slots": [{"file": "/a/b"}, 4], "alias": "m", "n": None}
    assert without_folders(told) == {
        "model_path": "m.gguf",
        "slots": [{"file": "b"}, 4],
        "alias": "m",
        "n": None,
    }
    assert without_folders("/ is no path\nbut text") == "/ is no path\nbut text"


CLIENTS = (
    "run_acceptance",
    "report_acceptance",
    "bench_serving_concurrency",
    "compare_peers",
    "serve_peer",
)
"""What else stands beside them measures parts of the engine, from within."""


def test_what_asks_servers_imports_nothing_of_ours() -> None:
    parts = [*BENCHMARKS.glob("harness/*.py"), *BENCHMARKS.glob("peers/*.py")]
    assert len(parts) > 20
    for path in [*parts, *(BENCHMARKS / f"{name}.py" for name in CLIENTS)]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] == "surefoot"], path
