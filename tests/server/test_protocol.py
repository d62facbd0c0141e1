"""Raw sockets that break the rules of HTTP, or keep them very slowly."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from support.live_server import TIMEOUT_S, LiveServer, read_reply, serving, status_of
from support.server_fakes import END, FakeStream, say
from surefoot.server.limits import BodyLimits, ConnectionLimits, ServerConfig

QUICK = ServerConfig(
    connection=ConnectionLimits(
        header_timeout_s=0.3, body_timeout_s=0.3, write_stall_s=0.3, send_buffer_bytes=4096
    )
)


def send_all(connection: socket.socket, data: bytes) -> None:
    """Send until the server has had enough."""
    try:
        connection.sendall(data)
    except OSError:
        return


def refusal(server: LiveServer, data: bytes) -> tuple[int, dict[str, object]]:
    """Status and error of the reply to these bytes; the server must close after it."""
    with server.connect() as connection:
        sender = threading.Thread(target=send_all, args=(connection, data))
        sender.start()
        reply = read_reply(connection)
        sender.join()
    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    error: dict[str, object] = json.loads(body)["error"]
    assert error["type"] == "invalid_request_error"
    return status_of(reply), error


def still_answers(server: LiveServer) -> None:
    body = {"messages": [{"role": "user", "content": "Say OK."}], "max_tokens": 4}
    reply = httpx.post(server.url + "/v1/chat/completions", json=body)
    assert reply.json()["choices"][0]["message"]["content"] == "OK"


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with serving(say("OK")) as (live, _):
        yield live


HEAD = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (HEAD + b"X-A: " + b"a" * 120_000 + b"\r\n\r\n", 431),
        (HEAD + b"X-A: " + b"a" * 5_000_000, 431),
        (HEAD + b"".join(b"X-%d: a\r\n" % i for i in range(101)) + b"\r\n", 431),
        (HEAD + b"".join(b"X-%d: a\r\n" % i for i in range(20_000)) + b"\r\n", 431),
        (b"GET /" + b"a" * 5_000_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /" + b"a" * 33_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"\x16\x03\x01 this is no HTTP\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n", 400),
    ],
)
def test_broken_headers_are_refused_and_the_connection_closed(
    server: LiveServer, data: bytes, status: int
) -> None:
    assert refusal(server, data)[0] == status
    still_answers(server)


def test_slow_headers_time_out() -> None:
    with serving(say("OK"), QUICK) as (server, _):
        status, error = refusal(server, HEAD + b"X-Slow: ")
        assert status == 408
        assert error["message"] == "the headers took longer to arrive than the limit of 0.3 s"
        still_answers(server)


def test_a_silent_connection_is_closed() -> None:
    with serving(say("OK"), QUICK) as (server, _), server.connect() as connection:
        assert status_of(read_reply(connection)) == 408


def test_a_slow_body_times_out() -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with serving(say("OK"), QUICK) as (server, sink):
        status, error = refusal(server, head)
        assert status == 408
        assert error["message"] == "the body took longer to arrive than the limit of 0.3 s"
        assert sink.requests == []
        still_answers(server)


def test_a_large_body_is_refused_before_it_is_sent() -> None:
    """The declared length alone decides; nothing of the body is waited for."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: 1000000000000\r\n\r\n{"
    with serving(say("OK")) as (server, _), server.connect() as connection:
        connection.sendall(head)
        assert status_of(connection.recv(65536)) == 413
        still_answers(server)


def test_a_client_that_sends_a_large_body_whole_still_gets_the_413() -> None:
    config = ServerConfig(body=BodyLimits(max_body_bytes=4096))
    with serving(say("OK"), config) as (server, _):
        reply = httpx.post(
            server.url + "/v1/completions",
            content=b" " * 20_000_000,
            headers={"Content-Type": "application/json"},
        )
        assert reply.status_code == 413
        assert reply.json()["error"]["code"] == "payload_too_large"
        still_answers(server)


def test_a_chunked_body_is_counted() -> None:
    config = ServerConfig(body=BodyLimits(max_body_bytes=4096))

    def pieces() -> Iterator[bytes]:
        for _ in range(1000):
            yield b" " * 1000

    with serving(say("OK"), config) as (server, _):
        reply = httpx.post(
            server.url + "/v1/completions",
            content=pieces(),
            headers={"Content-Type": "application/json"},
        )
        assert reply.status_code == 413
        still_answers(server)


def test_too_many_connections() -> None:
    config = ServerConfig(connection=ConnectionLimits(max_connections=2))
    with ExitStack() as stack:
        server, _ = stack.enter_context(serving(say("OK"), config))
        for _ in range(2):
            connection = stack.enter_context(server.connect())
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert status_of(connection.recv(65536)) == 200
        reply = read_reply(stack.enter_context(server.connect()))
        assert status_of(reply) == 503
        assert b"retry-after: 1" in reply


def test_a_client_that_never_reads_is_cancelled() -> None:
    """Its buffers fill, it is cut off after the stall time, and its row is cancelled."""

    def flood(stream: FakeStream) -> None:
        stream.emit(*b"x" * (2000 - 1))

    body = json.dumps({"prompt": "hi", "max_tokens": 2000, "stream": True, "n": 8}).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    request += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serving(flood, QUICK, context_length=4000) as (server, sink):
        with server.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(request + body)
            for _ in range(8):
                assert sink.submitted_for_threads.acquire(timeout=TIMEOUT_S)
            for stream in sink.streams:
                assert stream.cancelled_for_threads.wait(TIMEOUT_S)
        sink.script = say("OK")
        still_answers(server)
        assert server.app.state.api.live.num_groups == 0


def test_pipelined_rubbish_while_a_reply_streams_ends_the_connection_only() -> None:
    body = json.dumps({"prompt": "hi", "max_tokens": 9, "stream": True}).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    request += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serving(lambda stream: stream.emit(*b"ab", END)) as (server, sink):
        with server.connect() as connection:
            connection.sendall(request + body + b"\x00\x01 rubbish\r\n\r\n")
            reply = read_reply(connection)
        assert status_of(reply) == 200
        assert b"data: [DONE]" in reply
        assert b"400 Bad Request" in reply
        sink.script = say("OK")
        still_answers(server)
