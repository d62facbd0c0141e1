"""What the kernel is asked to do with the sockets of clients."""

from __future__ import annotations

import socket

import httpx

from support.live_server import serving
from support.server_fakes import say


def test_small_writes_are_sent_at_once() -> None:
    """Nagle's algorithm would hold the second chunk of a reply until the first is acknowledged."""
    with serving(say("OK")) as (server, _), httpx.Client(base_url=server.url) as client:
        assert client.get("/health").status_code == 200
        (protocol,) = server.server.server_state.connections
        peer = protocol.transport.get_extra_info("socket")  # type: ignore[union-attr]
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
