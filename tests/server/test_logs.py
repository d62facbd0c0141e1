"""Log lines that name their request, and never its text."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from support.server_fakes import FakeStream, Harness, say
from surefoot.errors import EngineError
from surefoot.server.logs import log_handler


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What a JSON handler on the root logger writes."""
    written = io.StringIO()
    handler = log_handler(as_json=True)
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(written)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield written
    root.removeHandler(handler)
    root.setLevel(level)


def records(lines: io.StringIO, logger: str) -> list[dict[str, object]]:
    parsed = [json.loads(line) for line in lines.getvalue().splitlines()]
    return [record for record in parsed if record["logger"].startswith(logger)]


def test_the_access_line_has_the_request_id_and_no_query(lines: io.StringIO) -> None:
    Harness(say("OK")).get("/v1/models?token=abc", **{"X-Request-Id": "mine"})
    (record,) = records(lines, "surefoot.access")
    assert record["message"] == "GET /v1/models 200"
    assert (record["request_id"], record["level"]) == ("mine", "info")
    assert isinstance(record["milliseconds"], float)


def test_a_fault_in_a_stream_is_logged_under_its_request(lines: io.StringIO) -> None:
    def break_off(stream: FakeStream) -> None:
        stream.emit(*b"a")
        stream.fail(EngineError("logits are not finite"))

    headers = {"X-Request-Id": "mine"}
    body = {"prompt": "a secret prompt", "stream": True}
    Harness(break_off).send("POST", "/v1/completions", json=body, headers=headers)
    (fault,) = records(lines, "surefoot.server")
    assert "logits are not finite" in str(fault["message"])
    assert (fault["request_id"], fault["level"]) == ("mine", "warning")
    assert "secret" not in lines.getvalue()


def test_a_traceback_is_one_field(lines: io.StringIO) -> None:
    def explode(stream: FakeStream) -> None:
        raise RuntimeError("a bug")

    Harness(explode).chat()
    (fault,) = [r for r in records(lines, "surefoot.server") if "error" in r]
    assert "RuntimeError: a bug" in str(fault["error"])
    assert fault["level"] == "error"


@pytest.mark.parametrize(("request_id", "shown"), [("abc", "[abc] hello"), (None, ": hello")])
def test_plain_lines(request_id: str | None, shown: str) -> None:
    handler = log_handler(as_json=False)
    extra = {} if request_id is None else {"request_id": request_id}
    record = logging.getLogger("x").makeRecord(
        "x", logging.INFO, "f", 1, "hello", (), None, extra=extra
    )
    assert handler.filter(record)
    line = handler.format(record)
    assert line.endswith(shown)
    assert " INFO x: " in line
