"""`surefoot generate` and `chat` with the default model."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from surefoot.cli.program import run

PERIODIC = "1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2,"
"""Goes on as it is on every processor; how the model answers an order to copy differs."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def model(home: Path, default_gguf_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Flags for the default model at a context of 256, packed once for this file."""
    monkeypatch.setenv("SUREFOOT_HOME", str(home))
    return ["-m", str(default_gguf_path), "--ctx", "256"]


def test_text_goes_to_stdout_and_figures_to_stderr(
    model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["generate", "-p", "Name three kinds of tea.", "-n", "8", *model]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert len(captured.out) > 10
    assert captured.err.startswith("prompt: 36 tokens, ")
    assert captured.err.endswith(" tokens/s (length)\n")


def test_a_seed_makes_a_sampled_reply_repeatable(
    model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for seed in ("1", "1"):
        arguments = ["generate", "-p", "Invent a name.", "-n", "10", "--temp", "0.9"]
        assert run([*arguments, "--seed", seed, "--deterministic", *model]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


def test_prompt_lookup_gives_the_same_text_and_its_counts(
    model: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["generate", "--raw", "-p", PERIODIC, "-n", "40", "--deterministic", *model]
    assert run(arguments) == 0
    plain = capsys.readouterr()
    traces = tmp_path / "traces.jsonl"
    assert run([*arguments, "--prompt-lookup", "--record", str(traces)]) == 0
    looked_up = capsys.readouterr()
    assert looked_up.out == plain.out
    last = looked_up.err.splitlines()[-1]
    assert last.startswith("prompt lookup: rounds=")
    assert " accepted=0 " not in last
    trace = json.loads(traces.read_text())
    assert len(trace["emitted"]) <= 40
    assert trace["max_tokens"] == 40
    assert trace["capacity"] == 256


def test_a_stop_text_ends_it(model: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "--raw", "-p", "1, 2, 3, 4, 5,", "--stop", " 8", *model]) == 0
    captured = capsys.readouterr()
    assert captured.out == " 6, 7,\n"
    assert captured.err.endswith("(stop)\n")


def test_a_prompt_that_does_not_fit_is_one_line(
    model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["generate", "-p", "word " * 400, *model]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("surefoot: error: the prompt holds ")
    assert captured.err.endswith(" tokens, the context 256\n")


def test_bad_settings_are_refused_before_a_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["generate", "-p", "hi", "-m", "/no/such.gguf", "--prompt-lookup"]
    assert run([*arguments, "--draft-max", "65"]) == 1
    assert "max_draft is 65; it must be between 1 and 64" in capsys.readouterr().err
    assert run([*arguments, "--prompt-lookup-ngram-min", "4"]) == 1
    assert "ngram_min is 4" in capsys.readouterr().err


def test_a_conversation_has_a_memory(
    model: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "hi\nhi\n/reset\nhi\n/what\n/exit\nnever read\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert run(["chat", "--temp", "0", "--deterministic", "--system", "Be brief.", *model]) == 0
    captured = capsys.readouterr()
    prompts = [line.split()[1] for line in captured.err.splitlines() if line.startswith("prompt:")]
    assert len(prompts) == 3
    assert prompts[0] == prompts[2] != prompts[1]
    assert "known), " in captured.err
    answers = captured.out.splitlines()
    assert answers[0] == answers[-1]
    assert "/reset forgets" in captured.err.splitlines()[-1]


@pytest.mark.parametrize("flag", ["--prompt-lookup-policy=goodput", "--draft-max=4"])
def test_a_flag_of_prompt_lookup_needs_it(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "-p", "Hi", flag]) == 1
    name, value = flag.split("=")
    assert capsys.readouterr().err == (
        f"surefoot: error: {name} is {value}; it needs --prompt-lookup too\n"
    )
