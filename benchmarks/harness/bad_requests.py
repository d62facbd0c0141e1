"""Bad HTTP requests as bytes: the bodies of `bad_values`, and everything around a body put wrong.

Each says which answers are right. Knows OpenAI's routes and HTTP/1.1; opens no socket.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.bad_values import NEVER_VALID, PATHS, SOMETIMES_VALID, base_fields, written

NO_REPLY = 0
"""In place of a status: the server closed without a word, as to a request that never became one."""

HTML = {"Content-Type": "text/html"}


@dataclass(frozen=True, slots=True)
class BadRequest:
    """`right`: the statuses that answer it well. `cut`: the bytes end before the request does."""

    kind: str
    data: bytes
    right: frozenset[int]
    cut: bool = False


Make = Callable[[random.Random], BadRequest]


def request_bytes(
    method: str, path: str, headers: Mapping[str, str], body: bytes, host: str = "localhost"
) -> bytes:
    """Well framed, unless the headers given say otherwise."""
    fields = {
        "Host": host,
        "Connection": "close",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    lines = [f"{name}: {value}" for name, value in (fields | dict(headers)).items() if value]
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""])
    return head.encode("utf-8", "surrogatepass") + body


def post(path: str, body: bytes, **headers: str) -> bytes:
    return request_bytes(
        "POST", path, {name.replace("_", "-"): value for name, value in headers.items()}, body
    )


def good_body(rng: random.Random, path: str) -> bytes:
    return written(base_fields(rng, path))


def bad_body(rng: random.Random) -> BadRequest:
    path = rng.choice(PATHS)
    kind = rng.choice([*SOMETIMES_VALID, "wrong values", "wrong values", *NEVER_VALID])
    if kind in SOMETIMES_VALID:
        body, right = SOMETIMES_VALID[kind](rng, path), frozenset({200, 400, 404})
    else:
        body, right = NEVER_VALID[kind](rng, path), frozenset({400})
    return BadRequest(f"body: {kind}", post(path, body), right)


def bad_length(rng: random.Random) -> BadRequest:
    """A Content-Length that is wrong, or no number."""
    path = rng.choice(PATHS)
    body = good_body(rng, path)
    size = len(body)
    longer = rng.random() < 0.3
    shorter = str(rng.randrange(size))
    wrong = rng.choice(
        ["-1", "+5", "0x10", "1e3", "five", "1 2", "9" * 30, f"{size}, {size + 1}", shorter]
    )
    length = str(size + rng.randrange(1, 1000)) if longer else wrong
    data = post(path, body, Content_Length=length)
    return BadRequest("content length", data, frozenset({400, 413, NO_REPLY}), cut=longer)


def bad_chunks(rng: random.Random) -> BadRequest:
    """A chunked body that breaks off, or whose sizes are none."""
    path = rng.choice(PATHS)
    body = good_body(rng, path)
    coded = rng.choice(
        [
            b"zz\r\n" + body + b"\r\n0\r\n\r\n",
            b"-5\r\n" + body,
            b"%x\r\n" % (len(body) + 9) + body,
            b"%x\r\n" % len(body) + body + b"no line break",
            b"f" * 40 + b"\r\n" + body,
            b"%x;%s\r\n" % (len(body), b"x" * 40_000) + body,
        ]
    )
    data = post(path, coded, Content_Length="", Transfer_Encoding="chunked")
    return BadRequest("chunks", data, frozenset({400, 413, 431, NO_REPLY}), cut=True)


def bad_coding(rng: random.Random) -> BadRequest:
    path = rng.choice(PATHS)
    coding = rng.choice(["gzip", "gzip, chunked", "identity", "chunked, chunked", "é", "CHUNKED x"])
    data = post(path, good_body(rng, path), Transfer_Encoding=coding)
    return BadRequest("transfer coding", data, frozenset({400, NO_REPLY}), cut=True)


def bad_method(rng: random.Random) -> BadRequest:
    methods = ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "post"]
    method = rng.choice([*methods, "FOO", "X" * 300, "PO ST", "", "P\x01ST", "PÖST"])
    path = rng.choice([*PATHS, "/v1/models", "/health", "/metrics", "/props"])
    data = request_bytes(method, path, {}, good_body(rng, PATHS[0]))
    return BadRequest("method", data, frozenset({200, 400, 405}))


PATH_PARTS = (
    *("..", ".", "", "%2e%2e", "%00", "%ff", "%zz", "%", "\\", "etc", "passwd", "v1", "models"),
    *("chat", "completions", "é", "漢字", "💥", "a b", "~root", "C:", "{id}", "x" * 2000, ";a=b"),
)


def bad_path(rng: random.Random) -> BadRequest:
    path = "/" + "/".join(rng.choice(PATH_PARTS) for _ in range(rng.randrange(1, 6)))
    path = rng.choice(["", "", "/v1/models", "/v1/chat"]) + path
    odd = [
        "*",
        "http://evil.example/v1/models",
        "//evil.example/",
        "?",
        "/" * 3000,
        "/" + "a" * 40_000,
    ]
    if rng.random() < 0.2:
        path = rng.choice(odd)
    if rng.random() < 0.2:
        path += "?" + rng.choice(["a=1&a=2", "%00", "stream=true", "=" * 100, "🔥"])
    method = rng.choice(["GET", "POST", "HEAD"])
    data = request_bytes(method, path, {}, good_body(rng, PATHS[1]))
    return BadRequest("path", data, frozenset({200, 400, 404, 405, 431}))


HEADERS: tuple[dict[str, str], ...] = (
    {"Content-Type": "text/plain"},
    {"Content-Type": "multipart/form-data"},
    {"Content-Type": "application/json; charset=utf-16"},
    {"Content-Type": "\x00"},
    {"Content-Type": "é" * 100},
    {"Content-Type": ""},
    {"Content-Encoding": "gzip"},
    {"Authorization": "Bearer é\xff"},
    {"Authorization": "Basic " + "x" * 5000},
    {"X-Request-Id": "a" * 4000},
    {"X-Request-Id": "../../x"},
    {"Host": "evil.example"},
    {"Host": "[::1"},
    {"Host": "a b"},
    {"Host": ""},
    {"Expect": "200-maybe"},
    {"Upgrade": "websocket", "Connection": "Upgrade, close"},
    {"Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__", "Connection": "Upgrade, close"},
    {"Range": "bytes=0-0,1-1,-1"},
    {"Origin": "null"},
    {"Origin": "https://evil.example"},
    {"X-A": "a" * 40_000},
    {"X-A\r\n folded": "x"},
    {"X A": "b"},
    {"": "no name"},
    {"X-A": "a\rb"},
    {"X-A": "a\x00b"},
    {"Content-length": "3"},
    {f"X-{number}": "a" for number in range(120)},
)


def bad_header(rng: random.Random) -> BadRequest:
    path = rng.choice(PATHS)
    data = request_bytes("POST", path, rng.choice(HEADERS), good_body(rng, path))
    return BadRequest("header", data, frozenset({200, 400, 403, 415, 431}))


PREAMBLES = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET  /  HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\nHost: a\n\n",
    b"\r\n\r\n\r\nGET",
    b"SSH-2.0-OpenSSH\r\n",
    b"\x00" * 100,
    b"{" * 100 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
)


def no_http(rng: random.Random) -> BadRequest:
    data = rng.choice([*PREAMBLES, rng.randbytes(rng.randrange(1, 300))])
    return BadRequest("not HTTP", data, frozenset({400, 403, 404, 431, NO_REPLY}), cut=True)


def cut_request(rng: random.Random) -> BadRequest:
    path = rng.choice(PATHS)
    whole = post(path, good_body(rng, path))
    data = whole[: rng.randrange(1, len(whole))]
    return BadRequest("request cut short", data, frozenset({NO_REPLY}), cut=True)


def followed_by_noise(rng: random.Random) -> BadRequest:
    """A good request, and rubbish where the next one should begin."""
    path = rng.choice(PATHS)
    data = post(path, good_body(rng, path), Connection="keep-alive")
    tail = rng.choice([b"\x00\x01rubbish", b"GET", rng.randbytes(100), b"POST / HTTP/1.1\r\nbad"])
    return BadRequest("rubbish after a request", data + tail, frozenset({200, 400, NO_REPLY}))


KINDS: tuple[tuple[Make, int], ...] = (
    (bad_body, 14),
    (bad_length, 2),
    (bad_chunks, 2),
    (bad_coding, 1),
    (bad_method, 2),
    (bad_path, 3),
    (bad_header, 3),
    (no_http, 2),
    (cut_request, 1),
    (followed_by_noise, 1),
)
"""Makers and their weights."""


def bad_request(seed: int) -> BadRequest:
    """The same seed, the same request."""
    rng = random.Random(seed)
    makers, weights = zip(*KINDS, strict=True)
    make: Make = rng.choices(makers, weights)[0]
    return make(rng)
