"""Each limit: its refusal's status, field, and a message with the value and the limit. What a
socket must be seen doing stands at the end and in `test_server_protocol`."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from live_server import TIMEOUT_S, read_reply, serving, status_of
from server_fakes import ByteTokenizer, FakeStream, Harness, hold, say
from surefoot.errors import ConfigError
from surefoot.server.limits import (
    MAX_TIME_S,
    BodyLimits,
    ConnectionLimits,
    ReplyLimits,
    RequestLimits,
    ServerConfig,
)

CONFIG = ServerConfig(
    body=BodyLimits(max_body_bytes=20_000, max_json_depth=8),
    request=RequestLimits(
        max_messages=5,
        max_parts=6,
        max_prompts=3,
        max_n=4,
        max_rows=6,
        max_prompt_tokens=20,
        max_logit_bias=2,
        max_stop=3,
        max_stop_chars=9,
        max_stop_token_ids=2,
    ),
)
USER = {"role": "user", "content": "a"}
PART = {"type": "text", "text": ""}


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


CHAT: list[tuple[dict[str, Any], str | None, str]] = [
    ({"messages": [USER] * 6}, "messages", "messages holds 6 messages; the limit is 5"),
    (
        {"messages": [{"role": "user", "content": [PART] * 7}]},
        "messages",
        "messages hold 7 content parts; the limit is 6",
    ),
    ({"n": 5}, "n", "n must be an integer from 1 to 4; got 5"),
    (
        {"logit_bias": {"1": 1, "2": 1, "3": 1}},
        "logit_bias",
        "logit_bias holds 3 entries; the limit is 2",
    ),
    ({"stop": ["a", "b", "c", "d"]}, "stop", "stop holds 4 strings; the limit is 3"),
    (
        {"stop": "aaaaaaaaaa"},
        "stop",
        'stop must be a string of 1 to 9 characters; got "aaaaaaaaaa"',
    ),
    ({"stop_token_ids": [1, 2, 3]}, "stop_token_ids", "stop_token_ids holds 3 ids; the limit is 2"),
    (
        {"messages": [{"role": "user", "content": "a" * 20}]},
        "messages",
        "the prompt holds 27 tokens; this server's limit is 20",
    ),
    ({"x": nested(8)}, None, "the body is nested deeper than the limit of 8 levels"),
    ({"x": nested(300)}, None, "the body is nested deeper than the limit of 8 levels"),
]

COMPLETION: list[tuple[dict[str, Any], str | None, str]] = [
    ({"prompt": ["a"] * 4}, "prompt", "prompt holds 4 prompts; the limit is 3"),
    (
        {"prompt": ["a"] * 3, "n": 3},
        "prompt",
        "3 prompts with n 3 ask for 9 choices; the limit is 6",
    ),
    ({"best_of": 1_000_000}, "best_of", "best_of must be an integer from 1 to 4; got 1000000"),
    ({"prompt": [1] * 21}, "prompt", "the prompt holds 21 tokens; this server's limit is 20"),
]


@pytest.fixture(scope="module")
def harness() -> Harness:
    return Harness(say("OK"), CONFIG)


def expect_400(harness: Harness, reply: httpx.Response, param: str | None, message: str) -> None:
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["param"], error["message"]) == (param, message)
    assert error["type"] == "invalid_request_error"
    assert harness.sink.requests == []


@pytest.mark.parametrize(("body", "param", "message"), CHAT)
def test_a_chat_beyond_a_limit(
    harness: Harness, body: dict[str, Any], param: str | None, message: str
) -> None:
    expect_400(harness, harness.chat(**body), param, message)


@pytest.mark.parametrize(("body", "param", "message"), COMPLETION)
def test_a_completion_beyond_a_limit(
    harness: Harness, body: dict[str, Any], param: str | None, message: str
) -> None:
    expect_400(harness, harness.complete(**body), param, message)


def test_everything_at_its_limit_passes() -> None:
    harness = Harness(say("OK"), CONFIG)
    chat = harness.chat(
        messages=[USER, {"role": "user", "content": [PART] * 6}],
        n=4,
        logit_bias={"1": 1, "2": 1},
        stop=["a" * 9, "b", "c"],
        stop_token_ids=[1, 2],
        x=nested(7),
    )
    completion = harness.complete(prompt=[[1] * 20, "a", "b"], n=2)
    assert (chat.status_code, completion.status_code) == (200, 200)
    assert len(harness.sink.requests) == 4 + 6


def test_n_is_also_bounded_by_all_choices_of_a_request() -> None:
    harness = Harness(say("OK"), ServerConfig(request=RequestLimits(max_rows=2)))
    expect_400(harness, harness.chat(n=3), "n", "n must be an integer from 1 to 2; got 3")


def test_a_prompt_that_cannot_fit_is_not_encoded() -> None:
    """Beyond `max_prompt_chars` the tokenizer, which would fail, is not asked."""

    class Untouched(ByteTokenizer):
        def encode(self, text: str, *, parse_special: bool, add_bos: bool) -> list[int]:
            assert len(text) <= 10, text
            return super().encode(text, parse_special=parse_special, add_bos=add_bos)

    harness = Harness(say("OK"), max_prompt_chars=10, tokenizer=Untouched())
    assert harness.complete(prompt="a" * 10).status_code == 200
    for prompt in ("a" * 11, ["a", "a" * 11], ["a" * 11, [1]]):
        reply = harness.complete(prompt=prompt)
        assert reply.status_code == 400
        error = reply.json()["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
        assert error["message"] == (
            "the prompt has 11 characters; no more than 10 can fit the tokens it may have"
        )
    assert len(harness.sink.requests) == 1
    assert harness.complete(prompt=[1] * 11).status_code == 200


def test_a_body_beyond_its_limit(harness: Harness) -> None:
    reply = harness.chat(x="a" * 20_000)
    assert reply.status_code == 413
    size = len(reply.request.content)
    assert (
        reply.json()["error"]["message"] == f"the body has {size} bytes; the limit is 20000 bytes"
    )


def test_bodies_of_all_clients_beyond_their_limit() -> None:
    """One client has sent most of a body and waits; another's does not fit beside it."""
    limits = BodyLimits(max_body_bytes=20_000, max_buffered_bytes=20_000)
    with serving(say("OK"), ServerConfig(body=limits)) as (server, _):
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        head += b"Content-Type: application/json\r\nContent-Length: 15000\r\n"
        head += b"Expect: 100-continue\r\n\r\n"
        with server.connect() as first:
            first.sendall(head)
            assert first.recv(100).startswith(b"HTTP/1.1 100 ")
            first.sendall(b" " * 14_000)
            body = {"prompt": "a", "x": "a" * 12_000}
            while (reply := httpx.post(server.url + "/v1/completions", json=body)).is_success:
                pass  # the first client's bytes are still on their way
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        error = reply.json()["error"]
        assert error["code"] == "queue_full"
        assert error["message"].endswith(
            "bytes of bodies are being read; the limit is 20000; try again later"
        )


HEAD = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"


def answer_to(data: bytes, limits: ConnectionLimits) -> tuple[int, str]:
    """Status and message of the reply to these bytes; the server closes after it."""
    with (
        serving(say("OK"), ServerConfig(connection=limits)) as (server, _),
        server.connect() as connection,
    ):
        connection.sendall(data)
        reply = read_reply(connection)
    message: str = json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["message"]
    return status_of(reply), message


def test_headers_beyond_their_size() -> None:
    limits = ConnectionLimits(max_header_bytes=1024)
    whole = answer_to(HEAD + b"X: " + b"a" * 1000 + b"\r\n\r\n", limits)
    assert whole == (431, "the request line and headers hold 1032 bytes; the limit is 1024 bytes")
    part = answer_to(HEAD + b"X: " + b"a" * 1024, limits)
    assert part == (431, "the request line and headers hold more bytes; the limit is 1024 bytes")


def test_more_headers_than_the_limit() -> None:
    data = HEAD + b"".join(b"X-%d: a\r\n" % i for i in range(8)) + b"\r\n"
    wanted = (431, "there are 9 headers; the limit is 8")
    assert answer_to(data, ConnectionLimits(max_headers=8)) == wanted


def test_more_connections_than_the_limit() -> None:
    config = ServerConfig(connection=ConnectionLimits(max_connections=1))
    with serving(say("OK"), config) as (server, _), server.connect() as first:
        first.sendall(HEAD + b"\r\n")
        assert status_of(first.recv(65536)) == 200
        with server.connect() as second:
            reply = read_reply(second)
        assert status_of(reply) == 503
        assert b"2 connections are open; the limit is 1; try again later" in reply
        assert b"retry-after: 1" in reply
        first.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        page = read_reply(first).decode()
        assert 'surefoot_connections_refused_total{reason="connections"} 1.0' in page


def test_a_connection_that_stays_silent_between_requests_is_closed() -> None:
    config = ServerConfig(connection=ConnectionLimits(keepalive_timeout_s=0.01))
    with serving(say("OK"), config) as (server, _), server.connect() as connection:
        connection.sendall(HEAD + b"\r\n")
        assert status_of(read_reply(connection)) == 200


def streamed_error(limits: ReplyLimits, script: Any) -> tuple[dict[str, Any], bool]:
    """The error that ends a stream over a socket, and whether the row was cancelled."""
    body = {"prompt": "hi", "stream": True, "max_tokens": 100}
    config = ServerConfig(reply=limits)
    with serving(script, config) as (server, sink):
        reply = httpx.post(server.url + "/v1/completions", json=body, timeout=TIMEOUT_S)
        assert reply.status_code == 200
        assert "[DONE]" not in reply.text
        events = [line[len("data: ") :] for line in reply.text.splitlines() if line[:6] == "data: "]
        cancelled = sink.streams[0].cancelled_for_threads.wait(TIMEOUT_S)
    error: dict[str, Any] = json.loads(events[-1])["error"]
    return error, cancelled


def say_a(stream: FakeStream) -> None:
    stream.emit(65)


def test_a_stream_that_stays_silent_too_long() -> None:
    error, cancelled = streamed_error(ReplyLimits(max_idle_s=0.05, keepalive_s=0.02), say_a)
    assert error["message"] == "the reply took longer than 0.05 s without a token"
    assert (error["code"], cancelled) == ("timeout", True)


def test_a_stream_that_takes_too_long_in_all() -> None:
    error, cancelled = streamed_error(ReplyLimits(max_total_s=0.05, keepalive_s=0.02), say_a)
    assert error["message"] == "the reply took longer than 0.05 s in all"
    assert (error["code"], cancelled) == ("timeout", True)


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (ReplyLimits(max_idle_s=0.05, keepalive_s=0.02), "without a token"),
        (ReplyLimits(max_total_s=0.05, keepalive_s=0.02), "in all"),
    ],
)
def test_a_reply_that_is_not_streamed_gets_the_status(limits: ReplyLimits, what: str) -> None:
    with serving(hold, ServerConfig(reply=limits)) as (server, sink):
        reply = httpx.post(server.url + "/v1/completions", json={"prompt": "a"}, timeout=TIMEOUT_S)
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert reply.json()["error"]["message"] == f"the reply took longer than 0.05 s {what}"
        assert sink.streams[0].cancelled_for_threads.wait(TIMEOUT_S)


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (ReplyLimits(max_idle_s=0.05, status_wait_s=1000), "without a token"),
        (ReplyLimits(max_total_s=0.05, status_wait_s=1000), "in all"),
    ],
)
def test_a_stream_that_never_began_gets_the_status_too(limits: ReplyLimits, what: str) -> None:
    with serving(hold, ServerConfig(reply=limits)) as (server, sink):
        body = {"prompt": "a", "stream": True}
        reply = httpx.post(server.url + "/v1/completions", json=body, timeout=TIMEOUT_S)
        assert reply.status_code == 503
        assert reply.json()["error"]["message"] == f"the reply took longer than 0.05 s {what}"
        assert sink.streams[0].cancelled_for_threads.wait(TIMEOUT_S)


def test_a_client_that_does_not_read_is_counted_and_cut() -> None:
    def flood(stream: FakeStream) -> None:
        stream.emit(*b"x" * (2000 - 1))

    limits = ConnectionLimits(write_stall_s=0.1, send_buffer_bytes=4096)
    body = json.dumps({"prompt": "hi", "max_tokens": 2000, "stream": True, "n": 8}).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    request += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    config = ServerConfig(connection=limits)
    with serving(flood, config, context_length=4000) as (server, sink):
        with server.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(request + body)
            for _ in range(8):
                assert sink.submitted_for_threads.acquire(timeout=TIMEOUT_S)
            for stream in sink.streams:
                assert stream.cancelled_for_threads.wait(TIMEOUT_S)
        page = httpx.get(server.url + "/metrics").text
        assert "surefoot_connections_stalled_total 1.0" in page


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, MAX_TIME_S + 1])
@pytest.mark.parametrize(
    ("section", "field"),
    [
        (ReplyLimits, "max_total_s"),
        (ReplyLimits, "max_idle_s"),
        (ConnectionLimits, "header_timeout_s"),
        (ConnectionLimits, "body_timeout_s"),
        (ConnectionLimits, "keepalive_timeout_s"),
        (ConnectionLimits, "write_stall_s"),
        (ServerConfig, "drain_timeout_s"),
    ],
)
def test_a_time_is_a_number_of_seconds_up_to_a_week(section: Any, field: str, value: float) -> None:
    name = field.removesuffix("_s") if section is ServerConfig else field
    with pytest.raises(ConfigError, match=rf"^{name} is {value}; it must be between 0") as caught:
        section(**{field: value})
    assert caught.value.param == name


def test_props_shows_every_limit(harness: Harness) -> None:
    limits = harness.get("/props").json()["limits"]
    assert limits["request"]["max_messages"] == 5
    assert limits["body"] == {
        "max_body_bytes": 20_000,
        "max_buffered_bytes": 128 * 2**20,
        "max_json_depth": 8,
    }
    assert limits["reply"]["max_idle_s"] == 600
    assert limits["connection"]["max_connections"] == 512
