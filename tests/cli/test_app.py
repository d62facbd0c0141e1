"""The program around its commands: help, exit codes, one line for every error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from surefoot import __version__
from surefoot.cli.program import run


def test_help_and_version_go_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "Commands" in capsys.readouterr().out
    assert run([]) == 0
    assert "Commands" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"surefoot {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nonsense"], "surefoot: error: No such command 'nonsense'."),
        (["list", "--nonsense"], "surefoot: error: No such option: --nonsense"),
        (["generate"], "surefoot: error: Missing option '--prompt' / '-p'."),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == line + "\n"


def test_a_failing_command_is_one_line_and_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "/no/such/file.gguf"]) == 1
    captured = capsys.readouterr()
    assert captured.err == (
        "surefoot: error: /no/such/file.gguf: no such file, folder or stored model\n"
    )


def test_help_loads_neither_the_engine_nor_the_hub_client() -> None:
    script = (
        "import sys; from surefoot.cli.program import run; code = run(['--help']); "
        "heavy = {'onnxruntime', 'numpy', 'huggingface_hub', 'uvicorn'} & set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_python_m_surefoot_is_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "surefoot", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"surefoot {__version__}\n")


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`surefoot --help | head -0`: the pipe is closed before anything is written."""
    script = (
        "import os, sys; from surefoot.cli.program import run; "
        "r, w = os.pipe(); os.close(r); os.dup2(w, 1); code = run(['--help']); "
        "sys.stdout.flush(); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
