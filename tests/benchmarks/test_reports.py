"""Reports from answers made by hand: what they decide, and that nothing is left out."""

from __future__ import annotations

from typing import Any

import pytest

from compare_peers import interpreter_for, parse_arguments, peers_of
from harness import acceptance
from harness.acceptance_report import Run, report, verdicts_of
from harness.arms import OFF, OFF_AGAIN, ON, UNPRICED
from harness.asking import Answer, Ask
from harness.load import Load
from harness.load_report import Point, load_report
from harness.meta_report import disturbed_line
from harness.peer_arms import OURS, OURS_AGAIN, OURS_PLAIN, own_plain
from harness.peer_report import peer_report
from harness.sse import Draft, Reply
from harness.texts import draft_line, parting_line
from harness.workloads import Item
from support.benchmark_fakes import reply

META: dict[str, Any] = {
    "machine": {
        "processor": "Some CPU",
        "cores": 2,
        "memory_gib": 8.0,
        "system": "Linux 6",
        "python": "3.11",
    },
    "packages": {"surefoot": "0.1.0"},
    "began": "2026-01-01 10:00:00",
    "arguments": {"rounds": 5, "force": False},
    "busy_cores_before": 0.05,
    "servers": [{"arm": "on", "command": "surefoot serve", "props": None}],
    "style": "plain",
}


def answer(workload: str, question: str, number: int, **arms: Reply) -> Answer:
    named = {name.replace("_", " "): (made,) for name, made in arms.items()}
    return Answer(Ask(workload, question, number, (Item(question, (), 256),)), named)


def answers(workload: str, on_s: float, unpriced_s: float = 0.5) -> list[Answer]:
    return [
        answer(
            workload,
            question,
            number,
            off=reply(decode_s=1.0),
            off_again=reply(decode_s=1.01),
            on=reply(decode_s=on_s, draft=Draft(10, 6, 4)),
            unpriced=reply(decode_s=unpriced_s),
        )
        for question in ("a", "b")
        for number in range(5)
    ]


def outcomes(workload: str, made: list[Answer], rounds: int = 5) -> list[str]:
    return [str(v.outcome) for v in verdicts_of(workload, Run({workload: made}, rounds, "server"))]


@pytest.mark.parametrize(
    ("on_s", "decided"), [(1.0, ["met", "met"]), (1.02, ["missed", "met"]), (1.1, ["missed"] * 2)]
)
def test_plain_goals(on_s: float, decided: list[str]) -> None:
    made = answers(acceptance.PLAIN_GREEDY, on_s)
    assert outcomes(acceptance.PLAIN_GREEDY, made) == decided


@pytest.mark.parametrize(
    ("on_s", "decided"), [(0.5, ["met", "met"]), (0.62, ["met", "missed"]), (0.9, ["missed"] * 2)]
)
def test_copy_goals(on_s: float, decided: list[str]) -> None:
    made = answers(acceptance.COPY_GREEDY, on_s)
    assert outcomes(acceptance.COPY_GREEDY, made) == decided


def test_one_round_decides_nothing() -> None:
    made = answers(acceptance.COPY_GREEDY, 0.5)[:1]
    assert outcomes(acceptance.COPY_GREEDY, made, rounds=1) == ["undecided"] * 2


def test_without_the_unpriced_arm_its_share_is_not_judged() -> None:
    made = answers(acceptance.COPY_GREEDY, 0.5)
    for entry in made:
        del entry.replies[UNPRICED]  # type: ignore[attr-defined]
    assert outcomes(acceptance.COPY_GREEDY, made) == ["met"]


def two_streams(on_s: float) -> list[Answer]:
    pair = (reply(decode_s=1.0), reply(decode_s=1.0))
    arms = {OFF: pair, OFF_AGAIN: pair, ON: (reply(decode_s=on_s), reply(decode_s=1.0))}
    items = (Item("a", (), 9), Item("b", (), 9))
    return [Answer(Ask(acceptance.TWO_STREAMS, "a + b", n, items), arms) for n in range(5)]


def test_two_streams_are_judged_together_and_each() -> None:
    made = two_streams(on_s=1.2)
    assert outcomes(acceptance.TWO_STREAMS, made) == ["missed", "missed", "met"]


def test_long_replies_that_copy_whole_have_a_goal_of_their_own() -> None:
    paragraph = "the paragraph"
    items = (Item("long-1024-0", (), 128, paragraph),)
    arms = {
        OFF: (reply(decode_s=1.0, text=paragraph),),
        OFF_AGAIN: (reply(decode_s=1.0, text=paragraph),),
        ON: (reply(decode_s=0.5, text=paragraph),),
    }
    made = [Answer(Ask(acceptance.LONG, "long-1024-0", n, items), arms) for n in range(3)]
    verdicts = verdicts_of(acceptance.LONG, Run({acceptance.LONG: made}, 3, "server"))
    assert [v.line().split(":")[1].strip() for v in verdicts] == [
        "(long, 1024 tokens) on does not lose",
        "(long, 1024 tokens) at least 1.8x where the reply copies whole",
    ]
    assert [str(v.outcome) for v in verdicts] == ["met", "met"]


def test_the_whole_report_says_what_ran_and_what_it_does_not_show() -> None:
    run = Run(
        {
            acceptance.PLAIN_GREEDY: answers(acceptance.PLAIN_GREEDY, 1.0),
            acceptance.TWO_STREAMS: two_streams(1.0),
        },
        5,
        "server",
        (0.1, 0.2),
    )
    text = report(run, META)
    for part in (
        "Some CPU, 2 cores",
        "rounds=5",
        "0.15 cores on average",
        "**met**: (plain-greedy)",
        "| off again |",
        "on: 40 verify rounds in 1000 tokens, 100 proposed, 60 accepted (60 %), 2.50 tokens",
        "on: all 10 texts equal those of off.",
        "the copy stream alone",
        "What this does not show",
    ):
        assert part in text
    assert "disturbed" not in text


def test_a_disturbed_run_says_so_first() -> None:
    assert disturbed_line([0.1, 0.3]) == ""
    assert disturbed_line([]) == ""
    assert "neither its speeds nor its verdicts count" in disturbed_line([0.1, 1.3])


def test_deterministic_servers_must_write_the_same() -> None:
    same = {"w": [answer("w", "a", 0, off=reply(), on=reply(), off_again=reply())]}
    parted = {"w": [answer("w", "a", 0, off=reply(), on=reply(text="x"), off_again=reply())]}
    meta = {**META, "arguments": {"flags": "--deterministic"}}
    goal = ": (w) on writes what off writes, servers being deterministic"
    assert f"**met**{goal}" in report(Run(same, 5, "server"), meta)
    assert f"**missed**{goal}" in report(Run(parted, 5, "server"), meta)
    assert goal not in report(Run(same, 5, "server"), META)


def test_partings_are_counted_and_placed() -> None:
    made = [
        answer("w", "a", 0, off=reply(text="abcd"), on=reply(text="abXY")),
        answer("w", "b", 0, off=reply(text="same"), on=reply(text="same")),
    ]
    assert parting_line(made, ON) == (
        "on: 1 of 2 texts part from off's, 5.0 times in 1,000 tokens; "
        "on average 50 % of the text is the same before it."
    )


def test_an_arm_without_drafts_says_so() -> None:
    made = [answer("w", "a", 0, off=reply(), on=reply())]
    assert draft_line(made, ON) == "on: nothing was proposed in 100 tokens."


def test_the_load_report_compares_with_off() -> None:
    def load(wall_s: float) -> Load:
        return Load((reply(), reply()), (), wall_s)

    arms = {ON: load(1.0), OFF: load(2.0), OFF_AGAIN: load(2.0)}
    points = [Point(4, number, arms) for number in range(3)]
    text = load_report(points, META)
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    assert next(r for r in rows if "on" in r)[:4] == ["", "concurrency 4", "on", "200.0"]
    assert "+100.0 % (+100.0 % to +100.0 %; +100.0 % to +100.0 %)" in text
    assert "6 (0)" in text


def test_failures_of_a_load_are_listed() -> None:
    arms = {ON: Load((reply(),), ("HttpError: HTTP 503: busy",), 1.0), OFF: Load((), (), 1.0)}
    text = load_report([Point(16, 0, arms)], META)
    assert "- HttpError: HTTP 503: busy" in text


def peer_answers(workload: str) -> list[Answer]:
    arms = {
        OURS_PLAIN: (reply(decode_s=1.0),),
        OURS: (reply(decode_s=0.4),),
        OURS_AGAIN: (reply(decode_s=1.0),),
        "llama.cpp plain": (reply(decode_s=1.25, first_s=1.0),),
        "llama.cpp ngram-mod": (reply(decode_s=0.5),),
        "onnxruntime-genai adaptive": (reply(decode_s=0.2, tokens=99),),
    }
    return [Answer(Ask(workload, "q", n, (Item("q", (), 100),)), arms) for n in range(3)]


def test_the_peer_report_says_where_a_peer_is_faster() -> None:
    made = {"copy": peer_answers("copy"), "long": peer_answers("long")}
    text = peer_report(made, {"transformers": "not installed"}, META, 3, ())
    for line in (
        "**met**: (copy) surefoot prompt-lookup at least 2.0 of llama.cpp plain: 3.12",
        "**missed**: (copy) surefoot prompt-lookup at least 1.5 of llama.cpp ngram-mod: 1.25",
        "**missed**: (copy) surefoot prompt-lookup at least 1.1 of onnxruntime-genai adaptive: 0.5",
        "**met**: (long) surefoot plain at least 1.2 of llama.cpp plain: 1.25",
        "**met**: (long) prefill at least 1.3 of llama.cpp plain: 2.00",
        "onnxruntime-genai adaptive: of 3 requests 0 had another prompt length than ours and 3",
        "transformers: not installed",
    ):
        assert line in text
    rows = [line for line in text.splitlines() if line.startswith("| onnxruntime-genai adaptive")]
    assert "+394.9 %" in rows[1]
    ours = next(line for line in text.splitlines() if line.startswith(f"| {OURS} "))
    cells = [cell.strip() for cell in ours.split("|")]
    assert cells[2:5] == ["248 (248-248)", "+150.0 % (+150.0 % to +150.0 %)", "+150.0 % (q)"]
    assert cells[8:10] == ["500 (500-500)", "not told"]


@pytest.mark.parametrize(
    ("arm", "plain"),
    [
        ("llama.cpp ngram-mod", "llama.cpp plain"),
        ("llama.cpp Q4_0 ngram-mod", "llama.cpp Q4_0 plain"),
        (OURS, OURS_PLAIN),
        (OURS_AGAIN, OURS_PLAIN),
        (OURS_PLAIN, OURS_PLAIN),
    ],
)
def test_each_arm_has_a_plain_arm_of_its_own(arm: str, plain: str) -> None:
    assert own_plain(arm) == plain


def test_an_interpreter_may_be_named_for_one_engine() -> None:
    given = ["/a/python", "openvino-genai=/b/python"]
    assert interpreter_for("llama.cpp", given) == "/a/python"
    assert interpreter_for("openvino-genai", given) == "/b/python"


def test_a_peer_without_its_model_is_left_out_with_the_reason() -> None:
    args = parse_arguments(["--model", "m.gguf", "--peers", "llama.cpp,onnxruntime-genai"])
    llama, onnx = peers_of(args)
    assert llama.missing() == "m.gguf is not there"
    assert onnx.missing() == "no model in its own form was named"


def test_a_faster_form_of_the_model_is_an_arm_beside() -> None:
    arguments = ["--model", "m.Q4_1.gguf", "--fast-model", "m.Q4_0.gguf", "--peers", "llama.cpp"]
    names = [peer.arm_name("plain") for peer in peers_of(parse_arguments(arguments))]
    assert names == ["llama.cpp plain", "llama.cpp Q4_0 plain"]
