"""A request that waits too long for its turn: a 503 that says when to come back."""

from __future__ import annotations

import pytest

from support.server_fakes import FakeStream, Harness
from surefoot.errors import QueueTimeoutError


def overdue(stream: FakeStream) -> None:
    stream.fail(QueueTimeoutError("no place came free"))


@pytest.mark.parametrize("stream", [False, True])
def test_the_reply_is_a_503_with_retry_after(stream: bool) -> None:
    reply = Harness(overdue).chat(stream=stream)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    error = reply.json()["error"]
    assert (error["type"], error["code"]) == ("overloaded_error", "queue_timeout")
    assert error["message"] == "no place came free"
