"""Limits that take a socket to see: of connections, headers, time, and clients that do not read."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from support.live_server import TIMEOUT_S, read_reply, serving, status_of
from support.server_fakes import FakeStream, hold, say
from surefoot.server.limits import BodyLimits, ConnectionLimits, ReplyLimits, ServerConfig


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
