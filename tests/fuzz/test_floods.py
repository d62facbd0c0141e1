"""Many clients that leave at any moment, or send rubbish, over real sockets: nothing is held."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
from contextlib import suppress

import httpx

from support.fakes import ScriptedEngine
from support.live_server import TIMEOUT_S, LiveLoop, looping

NUM_CLIENTS = 120
NUM_THREADS = 6


def http_request(rng: random.Random) -> bytes:
    """A request that may be whole, cut short, or wrong."""
    path = rng.choice(["chat/completions", "completions"])
    body: dict[str, object] = {
        "stream": rng.random() < 0.6,
        "max_tokens": rng.choice([1, 5, 300, "wrong"]),
        "n": rng.choice([1, 1, 2, 8]),
        "seed": rng.randrange(9),
    }
    text = "x" * rng.randrange(1, 200)
    messages = [{"role": "user", "content": text}]
    body |= {"prompt": text} if path == "completions" else {"messages": messages}
    data = json.dumps(body).encode()
    head = f"POST /v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    whole = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
    if rng.random() < 0.3:
        return whole[: rng.randrange(len(whole))]
    if rng.random() < 0.1:
        return whole + b"\x00rubbish"
    return whole


def visit(live: LiveLoop, rng: random.Random) -> None:
    """Send, read so many bytes, and go: in order, or by a reset."""
    with live.server.connect() as connection:
        connection.sendall(http_request(rng))
        connection.settimeout(0.001)
        with suppress(OSError):
            connection.recv(rng.choice([1, 500, 50_000]))
        if rng.random() < 0.5:
            reset = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)


def test_clients_that_leave_at_any_moment() -> None:
    """`LiveLoop.close` runs the scheduler's own `check()` at the end."""
    with looping(ScriptedEngine(4, 600, vocab=128)) as live:

        def run(number: int) -> None:
            rng = random.Random(number)
            for _ in range(NUM_CLIENTS // NUM_THREADS):
                visit(live, rng)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(NUM_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
        with httpx.Client(base_url=live.url, timeout=TIMEOUT_S) as client:
            asked = {"prompt": "hi", "max_tokens": 4, "temperature": 0}
            while (reply := client.post("/v1/completions", json=asked)).status_code == 503:
                assert reply.json()["error"]["code"] in ("queue_full", "overloaded")
            assert reply.json()["usage"]["completion_tokens"] == 4
            while live.server.app.state.api.live.num_groups:
                assert client.get("/health").status_code == 200
            page = client.get("/metrics").text
        assert "surefoot_rows_open 0.0" in page
        assert 'status="500"' not in page
        stats = live.loop.stats()
        assert (stats.running, stats.waiting, stats.requests_failed) == (0, 0, 0)
