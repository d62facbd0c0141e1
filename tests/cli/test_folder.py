"""A Hugging Face folder from end to end: generate, inspect, what is said while it is packed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.text_folders import write_hf_folder
from surefoot.cli.program import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUREFOOT_HOME", str(tmp_path / "home"))
    return write_hf_folder(tmp_path / "small")


def generate(folder: Path, *more: str) -> int:
    flags = ["-m", str(folder), "-n", "6", "--ctx", "128", "--deterministic"]
    return run(["generate", "-p", "hello", *flags, *more])


def test_it_is_quantized_once_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(folder) == 0
    first = capsys.readouterr()
    assert "quantizing the weights, once: 15 of 15 matrices\n" in first.err
    assert generate(folder) == 0
    second = capsys.readouterr()
    assert "quantizing" not in second.err
    assert second.out == first.out


def test_floats_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(folder, "--quantize", "none") == 0
    assert "quantizing" not in capsys.readouterr().err


def test_a_wrong_word_for_quantize(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(folder, "--quantize", "q3") != 0
    assert "--quantize is 'q3'; it must be one of q8, q4, none" in capsys.readouterr().err


def test_without_a_tokenizer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tokenizer.json").unlink()
    assert generate(folder) != 0
    assert "small: the folder holds no tokenizer.json" in capsys.readouterr().err


def test_inspect_measures_what_becomes_of_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", str(folder), "--json"]) == 0
    matrices, vectors = json.loads(capsys.readouterr().out)["computed"]
    assert (matrices["type_name"], matrices["num_tensors"]) == ("F32", 15)
    assert matrices["form"] == "8 bits, blocks of 32"
    assert 0 < matrices["error"] < 0.005
    assert (vectors["type_name"], vectors["num_tensors"]) == ("F32", 11)
    assert (vectors["form"], vectors["error"]) == ("float32", 0)
    assert run(["inspect", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(
        line.startswith("computed as:   F32 in 15 tensors: 8 bits, blocks of 32, off by at most 0.")
        for line in lines
    )
