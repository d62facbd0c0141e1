"""Requests as bytes over a socket, and replies as they come: no client library that would mend
either on the way."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from harness.bad_requests import NO_REPLY

PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class RawReply:
    """The first reply on a connection. `status` is `NO_REPLY` when none came; `whole` False when
    the server closed before it was complete."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool = True

    def json(self) -> Any:
        return json.loads(self.body)


def connect(url: str, patience_s: float = PATIENCE_S) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=patience_s)


def exchange(url: str, data: bytes, cut: bool, patience_s: float = PATIENCE_S) -> RawReply:
    """Send these bytes on a connection of their own and read the reply; `cut`: nothing more will
    come, and the server is told. Raises `TimeoutError` if the server neither answers nor closes."""
    with connect(url, patience_s) as connection:
        # A server may refuse, and close, before it has taken everything.
        with suppress(ConnectionError):
            connection.sendall(data)
            if cut:
                connection.shutdown(socket.SHUT_WR)
        return read_reply(connection, bodiless=data.startswith(b"HEAD "))


def read_reply(connection: socket.socket, bodiless: bool = False) -> RawReply:
    received = bytearray()
    while b"\r\n\r\n" not in received:
        if not receive(connection, received):
            return RawReply(NO_REPLY, {}, bytes(received), whole=not received)
    head, _, rest = bytes(received).partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    status = int(status_line.split(" ")[1])
    if bodiless:
        return RawReply(status, headers, b"")
    body, whole = read_body(connection, headers, bytearray(rest))
    return RawReply(status, headers, body, whole)


def read_body(
    connection: socket.socket, headers: Mapping[str, str], received: bytearray
) -> tuple[bytes, bool]:
    """The body so far as it came, and whether that is all of it. Chunks stay coded; what follows
    is another reply's."""
    chunked = headers.get("transfer-encoding") == "chunked"
    size = int(headers.get("content-length", 0))
    while not (received.endswith(b"0\r\n\r\n") if chunked else len(received) >= size):
        if not receive(connection, received):
            return bytes(received), False
    return bytes(received if chunked else received[:size]), True


def receive(connection: socket.socket, into: bytearray) -> bool:
    """Whether more came before the end."""
    try:
        data = connection.recv(65536)
    except ConnectionResetError:
        return False
    into += data
    return bool(data)


def reset(connection: socket.socket) -> None:
    """Leave without a goodbye: the server sees a reset."""
    linger = struct.pack("ii", 1, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
