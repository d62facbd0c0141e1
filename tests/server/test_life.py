"""Loading, ready, failed, draining, stopped."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from support.live_server import TIMEOUT_S, LiveServer, read_reply, serving, status_of
from support.server_fakes import FakeSink, FakeStream, Harness, hold, say, served_model
from surefoot.errors import ConfigError, ModelError
from surefoot.server.app import create_app
from surefoot.server.limits import ServerConfig
from surefoot.server.listening import (
    base_url,
    bind_socket,
    default_allowed_hosts,
    is_loopback,
)
from surefoot.server.serve import run_server
from surefoot.server.state import ServerState

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def test_503_until_the_model_is_there_and_then_a_chat_works() -> None:
    server = LiveServer()
    try:
        with httpx.Client(base_url=server.url) as client:
            health = client.get("/health")
            assert (health.status_code, health.json()) == (503, {"status": "loading"})
            assert health.headers["retry-after"] == "1"
            for path in ("/v1/models", "/props", "/v1/models/tiny"):
                assert client.get(path).status_code == 503
            chat = client.post("/v1/chat/completions", json=CHAT)
            assert (chat.status_code, chat.headers["retry-after"]) == (503, "1")
            assert chat.json()["error"]["code"] == "not_ready"
            assert client.get("/metrics").status_code == 200
            server.state.set_ready(served_model(FakeSink(say("OK"))))
            assert client.get("/health").json() == {"status": "ok"}
            assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
    finally:
        server.stop()


def test_a_load_that_fails_stops_the_server_with_its_error() -> None:
    state = ServerState()
    config = ServerConfig()
    listener = bind_socket("127.0.0.1", 0)
    state.set_failed(ModelError("model.gguf: truncated"))
    with pytest.raises(ModelError, match="truncated"):
        run_server(create_app(state, config), listener, state, config)


def test_a_dead_loop_is_not_healthy_and_takes_no_chat() -> None:
    harness = Harness(alive=lambda: False)
    assert harness.get("/health").json() == {"status": "failed"}
    reply = harness.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "engine_error")


def test_draining_lets_replies_finish_and_takes_no_more() -> None:
    with serving(hold) as (server, sink):
        with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
            replies: list[httpx.Response] = []

            def ask() -> None:
                replies.append(client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 2}))

            asker = threading.Thread(target=ask)
            asker.start()
            assert sink.submitted_for_threads.acquire(timeout=TIMEOUT_S)
            server.state.draining = True
            late = client.post("/v1/chat/completions", json=CHAT)
            assert late.json()["error"]["code"] == "not_ready"
            assert client.get("/health").json() == {"status": "draining"}
            server.server.stop()
            loop_thread_emits(server, sink.streams[0])
            asker.join(TIMEOUT_S)
        assert replies[0].json()["choices"][0]["message"]["content"] == "OK"
        server.thread.join(TIMEOUT_S)
        assert not server.thread.is_alive()


def loop_thread_emits(server: LiveServer, stream: FakeStream) -> None:
    """Emit on the server's own event loop."""
    (task,) = list(server.app.state.api.live.pumps())
    task.get_loop().call_soon_threadsafe(stream.emit, *b"OK")


def test_after_the_drain_timeout_a_stream_ends_with_an_error_event() -> None:
    config = ServerConfig(drain_timeout_s=0.2)
    body = json.dumps(CHAT | {"stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serving(lambda s: s.emit(*b"a"), config) as (server, _), server.connect() as connection:
        connection.sendall(head + body)
        assert status_of(connection.recv(65536)) == 200
        server.server.stop()
        rest = read_reply(connection)
        assert b'"code":"not_ready"' in rest
        assert b"[DONE]" not in rest
        server.thread.join(TIMEOUT_S)
        assert not server.thread.is_alive()


PROGRAM = """
import sys
sys.path[:0] = {paths!r}
from support.server_fakes import FakeSink, hold, served_model
from surefoot.server.app import create_app
from surefoot.server.limits import ServerConfig
from surefoot.server.listening import base_url, bind_socket
from surefoot.server.serve import run_server
from surefoot.server.state import ServerState
state, config = ServerState(), ServerConfig(drain_timeout_s=60)
listener = bind_socket("127.0.0.1", 0)
state.set_ready(served_model(FakeSink(hold)))
print(base_url(listener), flush=True)
run_server(create_app(state, config), listener, state, config)
print("closed in order", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_drains_and_the_second_stops(number: signal.Signals) -> None:
    tests = Path(__file__).resolve().parents[1]
    program = PROGRAM.format(paths=[str(tests), str(tests.parent / "src")])
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    body = json.dumps(CHAT | {"stream": True}).encode()
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        wait_until_running(url)
        process.send_signal(number)
        wait_until_refused(url)
        assert process.poll() is None, "it must drain"
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    assert out == "closed in order\n"
    assert "Traceback" not in err


def wait_until_running(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        while "surefoot_rows_open 1.0" not in client.get("/metrics").text:
            continue


def wait_until_refused(url: str) -> None:
    while True:
        try:
            if httpx.get(url + "/health").status_code == 503:
                continue
        except httpx.TransportError:
            return


def test_port_0_is_a_free_port_and_is_told() -> None:
    with bind_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert base_url(listener) == f"http://127.0.0.1:{port}"


def test_a_taken_port_names_itself_and_disturbs_nobody() -> None:
    with serving(say("OK")) as (server, _):
        with pytest.raises(ConfigError, match=f"port {server.port} on 127.0.0.1 is taken"):
            bind_socket("127.0.0.1", server.port)
        assert httpx.get(server.url + "/health").status_code == 200


def test_taken_from_the_moment_it_is_bound() -> None:
    with bind_socket("127.0.0.1", 0) as listener, pytest.raises(ConfigError, match="is taken"):
        bind_socket("127.0.0.1", listener.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "port", "what"),
    [
        ("999.1.1.1", 8080, "host '999.1.1.1'"),
        ("1.2.3", 0, "host '1.2.3'"),
        ("192.0.2.1", 0, "192.0.2.1 is not an address of this machine"),
        ("127.0.0.1", -1, "port is -1"),
        ("127.0.0.1", 65536, "between 0 and 65535"),
        ("a" * 300, 0, "host 'aaa"),
    ],
)
def test_addresses_that_cannot_be_listened_on(host: str, port: int, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        bind_socket(host, port)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("example.org", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    hosts = default_allowed_hosts(host)
    assert (hosts is not None) is loopback
    if hosts is not None:
        assert {"localhost", host} <= set(hosts)
