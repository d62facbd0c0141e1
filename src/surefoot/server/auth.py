"""Who may ask: API keys, and the names this server answers to. Knows no route."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence

from surefoot.errors import AuthenticationError, ForbiddenHostError

RawHeaders = Iterable[tuple[bytes, bytes]]


class ApiKeys:
    """A request must carry exactly one `Authorization: Bearer KEY`, with one blank between the
    two.

    What is compared is the header's value as HTTP defines it: blanks and tabs around a value are
    no part of it (RFC 9110, 5.5), so a client cannot send a key with a blank at its end, and
    none can be set. Within the value every byte counts.

    Digests of equal length are compared in constant time, all of them always, so that neither a
    key's length nor its place shows in the answer's time. Bytes are compared, so no form of a
    key can raise.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def check(self, headers: RawHeaders) -> None:
        """Raises `AuthenticationError`, the same for every wrong form."""
        if not self._digests:
            return
        values = [value.strip(b" \t") for name, value in headers if is_authorization(name)]
        scheme, _, key = (values[0] if len(values) == 1 else b"").partition(b" ")
        given = _digest(key)
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        if scheme.lower() != b"bearer" or not any(matches):
            raise AuthenticationError("a valid API key is needed: Authorization: Bearer KEY")


def is_authorization(name: bytes) -> bool:
    return name.lower() == b"authorization"


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class AllowedHosts:
    """None: any Host header passes. Ports are not compared; no Host header (HTTP/1.0) passes,
    since a browser always sends one."""

    def __init__(self, hosts: Sequence[str] | None) -> None:
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    def check(self, headers: RawHeaders) -> None:
        if self._hosts is None:
            return
        for name, value in headers:
            if name.lower() == b"host" and host_name(value) not in self._hosts:
                raise ForbiddenHostError("this server does not answer to that Host header")


def host_name(value: bytes) -> str:
    """`Example.org:8080` -> `example.org`; `[::1]:8080` -> `::1`."""
    host = value.decode("latin-1").strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host
