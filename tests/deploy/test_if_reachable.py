"""A check that needs a service: run where it answers, and said to be not run where it does not."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.live_server import serving
from support.server_fakes import say

SCRIPT = Path(__file__).parents[2] / "deploy" / "if_reachable.py"
NINE = [sys.executable, "-c", "print('ran'); raise SystemExit(9)"]


def ran(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


def test_where_the_service_answers_the_commands_code_counts() -> None:
    with serving(say("OK")) as (server, _):
        assert ran(server.url + "/health", *NINE) == (9, "ran\n", "")


def test_an_answer_that_is_an_error_is_no_service() -> None:
    with serving(say("OK")) as (server, _):
        code, out, err = ran(server.url + "/no/such/route", *NINE)
    assert (code, out) == (0, "")
    assert err.startswith("NOT RUN: ")


def test_where_nothing_answers_it_says_so(nobody: str) -> None:
    code, out, err = ran(nobody, *NINE)
    assert (code, out) == (0, "")
    assert err.startswith(f"NOT RUN: {nobody} cannot be reached from here: ")


def test_where_it_is_required_that_is_a_failure(nobody: str) -> None:
    code, out, _ = ran("--require", nobody, *NINE)
    assert (code, out) == (3, "")
