"""What one client may ask of the server, as numbers with their defaults.

Owns no checks but its own ranges; each limit is enforced where the thing it bounds is read.
`docs/limits.md` lists them with the flags that set them.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field

from surefoot.config import require_range
from surefoot.errors import ConfigError

MAX_TOP_LOGPROBS = 20
"""OpenAI's own limit."""

MAX_TIME_S = 7 * 24 * 3600
"""A week: the longest time that may be set."""


_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s?#]+")
_HOST = re.compile(r"[^\s:/\[\]]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """`max_body_bytes` is decided from Content-Length before anything is read; a chunked body is
    counted as it arrives. `max_buffered_bytes` bounds the bodies of all clients together."""

    max_body_bytes: int = 8 * 2**20
    max_buffered_bytes: int = 128 * 2**20
    max_json_depth: int = 32

    def __post_init__(self) -> None:
        require_range("max_body_bytes", self.max_body_bytes, 1024)
        require_range("max_buffered_bytes", self.max_buffered_bytes, self.max_body_bytes)
        require_range("max_json_depth", self.max_json_depth, 4, 200)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Counts within one body. `max_prompt_tokens` 0: the context alone bounds a prompt.
    `max_n`: choices of one prompt; `max_rows`: of all prompts together."""

    max_messages: int = 2048
    max_parts: int = 4096
    max_prompts: int = 64
    max_n: int = 8
    max_rows: int = 64
    max_prompt_tokens: int = 0
    max_logit_bias: int = 1024
    max_stop: int = 16
    max_stop_chars: int = 512
    max_stop_token_ids: int = 1024

    def __post_init__(self) -> None:
        for name in ("max_messages", "max_parts", "max_prompts", "max_n", "max_rows"):
            require_range(name, getattr(self, name), 1)
        require_range("max_stop_chars", self.max_stop_chars, 1)
        for name in ("max_prompt_tokens", "max_logit_bias", "max_stop", "max_stop_token_ids"):
            require_range(name, getattr(self, name), 0)


@dataclass(frozen=True, slots=True)
class ReplyLimits:
    """Seconds. `max_total_s`: a reply from submission to its last token. `max_idle_s`: no row of
    it emitted anything (queueing and prompt reading included). 0 turns either off.
    `keepalive_s`: a silent stream sends an SSE comment this often, so that proxies keep it.
    `status_wait_s`: how long a stream waits for its first event before the headers go out, so
    that an early failure still gets its HTTP status."""

    max_total_s: float = 3600.0
    max_idle_s: float = 600.0
    keepalive_s: float = 15.0
    status_wait_s: float = 5.0

    def __post_init__(self) -> None:
        require_range("max_total_s", self.max_total_s, 0, MAX_TIME_S)
        require_range("max_idle_s", self.max_idle_s, 0, MAX_TIME_S)
        require_range("keepalive_s", self.keepalive_s, 0.01, MAX_TIME_S)
        require_range("status_wait_s", self.status_wait_s, 0, MAX_TIME_S)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a socket may cost before a request is parsed. Times in seconds.

    `max_header_bytes` covers the request line and all headers. `header_timeout_s` runs from the
    first byte (or the accepted connection) to the blank line, `body_timeout_s` from there to the
    last byte of the body. `write_stall_s`: the client read nothing for so long while its reply
    waited; it is cut off and its rows are cancelled. `send_buffer_bytes` bounds what the kernel
    takes for a client that does not read.
    """

    max_connections: int = 512
    max_header_bytes: int = 32 * 1024
    max_headers: int = 100
    header_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    keepalive_timeout_s: float = 30.0
    write_stall_s: float = 30.0
    send_buffer_bytes: int = 128 * 1024

    def __post_init__(self) -> None:
        require_range("max_connections", self.max_connections, 1)
        require_range("max_header_bytes", self.max_header_bytes, 1024, 2**20)
        require_range("max_headers", self.max_headers, 8, 10_000)
        for name in (
            "header_timeout_s",
            "body_timeout_s",
            "keepalive_timeout_s",
            "write_stall_s",
        ):
            require_range(name, getattr(self, name), 0.01, MAX_TIME_S)
        require_range("send_buffer_bytes", self.send_buffer_bytes, 4096)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """`api_keys` empty: no key is asked for. `cors_origins` are exact origins, or `"*"` alone.
    `allowed_hosts` None: any Host header; otherwise only these names (without port), so that a
    foreign page cannot reach a loopback server through a name of its own (DNS rebinding)."""

    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] | None = None
    drain_timeout_s: float = 30.0
    body: BodyLimits = field(default_factory=BodyLimits)
    request: RequestLimits = field(default_factory=RequestLimits)
    reply: ReplyLimits = field(default_factory=ReplyLimits)
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)

    def limits(self) -> dict[str, dict[str, float]]:
        """Every limit by section and name, for `/props`."""
        return {
            "body": asdict(self.body),
            "request": asdict(self.request),
            "reply": asdict(self.reply),
            "connection": asdict(self.connection),
        }

    def __post_init__(self) -> None:
        require_range("drain_timeout", self.drain_timeout_s, 0, MAX_TIME_S)
        for key in self.api_keys:
            require_sendable(key)
        for origin in self.cors_origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    f"cors_origins is {origin!r}; it must be scheme://host[:port] or *",
                    param="cors_origins",
                )
        if "*" in self.cors_origins and len(self.cors_origins) > 1:
            raise ConfigError(
                f"cors_origins is * beside {len(self.cors_origins) - 1} more; it must stand alone",
                param="cors_origins",
            )
        for host in self.allowed_hosts or ():
            if not _HOST.fullmatch(host):
                raise ConfigError(
                    f"allowed_hosts is {host!r}; it must be a name or an address without a port",
                    param="allowed_hosts",
                )


def require_sendable(key: str) -> None:
    """Raise `ConfigError`, which does not show the key, unless a header can carry it."""
    if not key or key != key.strip():
        raise ConfigError(
            "an API key is empty or has a blank at its edge: a header cannot carry it",
            param="api_key",
        )
    if any(ord(character) < 32 or ord(character) == 127 for character in key):
        raise ConfigError(
            "an API key holds a control character: a header cannot carry it", param="api_key"
        )
