"""No client can write a log line of its own."""

from __future__ import annotations

import io
import logging

import pytest

from support.server_fakes import Harness
from surefoot.server.edge import shown_path
from surefoot.server.logs import log_handler


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/v1/models/a b é漢", "/v1/models/a b é漢"),
        ("/a\n2026-01-01 INFO surefoot: all is well", r"/a\n2026-01-01 INFO surefoot: all is well"),
        ("/\x1b[2J\x00\r\u202e\u2028", r"/\x1b[2J\x00\r\u202e\u2028"),
        ("/" + "a" * 199, "/" + "a" * 199),
        ("/" + "a" * 200, "/" + "a" * 199 + "..."),
    ],
)
def test_a_path_is_shown_on_one_line(path: str, shown: str) -> None:
    assert shown_path(path) == shown


def test_a_path_with_a_line_break_is_one_line_of_the_log() -> None:
    written = io.StringIO()
    handler = log_handler(as_json=False)
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(written)
    access = logging.getLogger("surefoot.access")
    level = access.level
    access.addHandler(handler)
    access.setLevel(logging.INFO)
    try:
        assert Harness().get("/v1/models/%0aINFO%20forged").status_code == 404
    finally:
        access.removeHandler(handler)
        access.setLevel(level)
    (line,) = written.getvalue().splitlines()
    assert line.endswith(r"GET /v1/models/\nINFO forged 404")
