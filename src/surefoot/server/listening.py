"""The listening socket: bound before anything slow happens, so that a wrong address is an error
at once and names itself."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket

from surefoot.errors import ConfigError, ListenError

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

_NUMERIC = re.compile(r"[0-9.]+")
_BACKLOG = 512


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket that listens on `host` and `port` (0: any free one). Raises `ConfigError` naming
    them, as a `ListenError` when the address is not this machine's, the port is taken, or may not
    be used."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"port is {port}; it must be between 0 and 65535", param="port")
    family, address = _resolve(host, port)
    # asyncio turns Nagle's algorithm off only where the protocol is named; with it on, a reply's
    # second write waits for the client's acknowledgement: 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _refusal(host, port, error) from None
    listener.setblocking(False)
    return listener


def base_url(listener: socket.socket) -> str:
    """`http://127.0.0.1:8080`, with the real port."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def default_allowed_hosts(host: str) -> tuple[str, ...] | None:
    """A server on loopback answers to loopback names alone; one that is open to a network cannot
    know its names."""
    return (*LOOPBACK_NAMES, host) if is_loopback(host) else None


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    wrong = ConfigError(f"host {host!r} is not an address that can be listened on", param="host")
    if _NUMERIC.fullmatch(host):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise wrong from None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise wrong from None
    family, _, _, _, address = found[0]
    return family, address  # type: ignore[return-value]


def _refusal(host: str, port: int, error: OSError) -> ListenError:
    if error.errno == errno.EADDRINUSE:
        return ListenError(f"port {port} on {host} is taken by another program", param="port")
    if error.errno in (errno.EACCES, errno.EPERM):
        return ListenError(
            f"port {port} on {host} may not be used without more rights", param="port"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return ListenError(f"host {host} is not an address of this machine", param="host")
    return ListenError(f"cannot listen on {host} port {port}: {error.strerror}", param="host")
