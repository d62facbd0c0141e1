"""What a peer comparison asks, of whom and for how long; its table and pictures."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from compare_peers import (
    ask_all,
    blocks_to_ask,
    environment_venvs,
    interpreter_for,
    our_servers,
    parse_arguments,
    whole_rounds,
)
from harness.asking import Answer, Ask
from harness.load import Load
from harness.load_plots import draw_load, values_of
from harness.load_report import Point
from harness.peer_arms import OURS, OURS_AGAIN, OURS_ONNX, OURS_ONNX_PLAIN, OURS_PLAIN, never_asked
from harness.peer_plots import WITHOUT, draw_peers
from harness.peer_report import speed_blocks
from harness.peer_rounds import by_round
from harness.peer_summary import summary_table
from harness.workloads import Item
from support.benchmark_fakes import reply

ITEMS = {
    "plain": [Item(name, (), 32) for name in ("a", "b", "c")],
    "copy": [Item(name, (), 32) for name in ("d", "e", "f")],
}


def arguments(*more: str) -> Any:
    return parse_arguments(["--model", "m.gguf", *more])


def test_every_question_is_asked_once_a_round_and_workloads_are_mixed() -> None:
    blocks = blocks_to_ask(ITEMS, arguments("--rounds", "3"))
    for number in range(3):
        asked = [(name, item.id) for name, item, n in blocks[6 * number : 6 * number + 6]]
        assert sorted(asked) == [(w, i.id) for w in ("copy", "plain") for i in ITEMS[w]]
        assert [n for _, _, n in blocks[6 * number : 6 * number + 6]] == [number] * 6
    assert blocks[:6] != blocks[6:12]
    assert blocks == blocks_to_ask(ITEMS, arguments("--rounds", "3"))


class CountingAsker:
    def __init__(self) -> None:
        self.asked: list[Ask] = []

    def answer(self, ask: Ask) -> Answer:
        self.asked.append(ask)
        return Answer(ask, {OURS_PLAIN: (reply(),)})


def test_no_block_is_begun_when_the_time_is_spent() -> None:
    asker = CountingAsker()
    args = arguments("--rounds", "3", "--minutes", "1e-9")
    assert ask_all(ITEMS, args, asker) == {}  # type: ignore[arg-type]
    assert asker.asked == []


def test_without_a_limit_all_blocks_are_asked() -> None:
    asker = CountingAsker()
    answers = ask_all(ITEMS, arguments("--rounds", "2"), asker)  # type: ignore[arg-type]
    assert {name: len(group) for name, group in answers.items()} == {"plain": 6, "copy": 6}
    assert all(ask.sampling["ignore_eos"] for ask in asker.asked)
    assert whole_rounds(answers) == 2
    answers["copy"].pop()
    assert whole_rounds(answers) == 1


def test_our_servers_run_on_the_onnx_folder_too() -> None:
    assert list(our_servers(arguments())) == [OURS_PLAIN, OURS]
    servers = our_servers(arguments("--onnx", "folder"))
    assert list(servers) == [OURS_PLAIN, OURS, OURS_ONNX_PLAIN, OURS_ONNX]
    assert servers[OURS_ONNX] == "--model folder --threads 2 --draft-kind prompt-lookup"


def test_interpreters_come_from_the_environment_and_flags_win(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PEER_VENVS", "llama.cpp=/env/llama,transformers=/env/hf")
    assert environment_venvs() == ["llama.cpp=/env/llama", "transformers=/env/hf"]
    given = arguments("--venv", "transformers=/flag/hf").peer_python
    assert interpreter_for("llama.cpp", given) == "/env/llama"
    assert interpreter_for("transformers", given) == "/flag/hf"


def test_an_engine_without_an_adapter_is_named_with_the_reason() -> None:
    assert "made for Apple's processors" in never_asked()["mlx-lm"]


def answers_of(*seconds: float) -> list[Answer]:
    """Our replies take `seconds`, the peer's own speculation half of them."""
    answers = []
    for number, taken in enumerate(seconds):
        arms = {
            OURS_PLAIN: (reply(decode_s=taken),),
            OURS_AGAIN: (reply(decode_s=taken),),
            "llama.cpp plain": (reply(decode_s=2 * taken),),
            "llama.cpp ngram-mod": (reply(decode_s=taken),),
        }
        answers.append(Answer(Ask("plain", "q", number, (Item("q", (), 100),)), arms))
    return answers


def test_the_summary_gives_medians_and_ranges() -> None:
    answers = {"plain": answers_of(1.0, 2.0, 4.0)}
    blocks = {"plain": speed_blocks(answers["plain"])}
    table = summary_table(blocks, answers, {OURS_PLAIN: 300.4, "llama.cpp plain": None})
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert rows[0][1:3] == ["plain: tokens/s", "plain: its speculation against its own plain"]
    assert rows[2][:4] == [OURS_PLAIN, "50 (25-99)", "", ""]
    assert rows[3][-1] == rows[2][-1] == "300"
    assert rows[5][:3] == [
        "llama.cpp ngram-mod",
        "50 (25-99)",
        "+100.0 % (+100.0 % to +100.0 %)",
    ]
    assert rows[4][-1] == "not told"


def test_each_speculation_is_told_by_round_against_its_own_plain() -> None:
    answers = answers_of(1.0, 2.0)
    once_more = {**answers[1].replies, "llama.cpp ngram-mod": (reply(decode_s=1.0),)}
    answers[1] = Answer(answers[1].ask, once_more)
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in by_round({"plain": answers}).splitlines()
        if line.startswith("|")
    ]
    assert rows[0] == ["arm", "round 1", "round 2"]
    assert rows[2:] == [["llama.cpp ngram-mod", "+100.0 %", "+300.0 %"]]


def test_one_round_alone_is_not_told_by_round() -> None:
    assert by_round({"plain": answers_of(1.0)}) == ""
    assert "By round" in by_round({"copy": answers_of(1.0), "plain": answers_of(1.0, 1.0)})


def test_pictures_are_written_and_shown(tmp_path: Path) -> None:
    answers = {"plain": answers_of(1.0, 2.0), "copy": answers_of(1.0, 1.0)}
    shown = draw_peers(tmp_path, {name: speed_blocks(group) for name, group in answers.items()})
    if find_spec("matplotlib") is None:
        assert shown == WITHOUT
        return
    for name in ("speeds.png", "gains.png"):
        assert f"({name})" in shown
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_replies_too_short_to_time_give_no_table_and_no_picture(tmp_path: Path) -> None:
    assert "too short" in summary_table({"plain": []}, {"plain": []}, {})
    assert "too short" in draw_peers(tmp_path, {"plain": []})
    assert list(tmp_path.iterdir()) == []


def load_point(concurrency: int, wall_s: float) -> Point:
    load = Load((reply(first_s=0.25), reply(first_s=0.25)), (), wall_s)
    return Point(concurrency, 0, {"on": load, "off": load})


def test_a_load_is_pictured_by_concurrency(tmp_path: Path) -> None:
    points = [load_point(8, 1.0), load_point(2, 4.0), load_point(2, 2.0), load_point(2, 1.0)]
    values = values_of(points, "on")
    assert list(values) == [2, 8]
    assert [(speed, first) for speed, first, _ in values.values()] == [(100, 250), (200, 250)]
    shown = draw_load(tmp_path, points)
    if find_spec("matplotlib") is None:
        assert shown == WITHOUT
        return
    assert "(load.png)" in shown
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")


def test_a_load_without_answers_gives_no_picture(tmp_path: Path) -> None:
    failed = Point(1, 0, {"on": Load((), ("busy",), 1.0)})
    assert "answered nothing" in draw_load(tmp_path, [failed])
    assert list(tmp_path.iterdir()) == []
