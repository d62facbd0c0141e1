"""Keys, hosts, origins, request ids, routes, and what no reply may show."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from support.live_server import serving, status_of
from support.server_fakes import Harness, hold, say
from surefoot.errors import ConfigError
from surefoot.server.auth import host_name
from surefoot.server.limits import ServerConfig

KEYS = ServerConfig(api_keys=("secret-one", "schlüssel"))
PATHS = ["/v1/models", "/metrics", "/props", "/nope"]


def with_headers(harness: Harness, path: str, *headers: tuple[str, bytes | str]) -> Any:
    raw = [(n.encode(), v if isinstance(v, bytes) else v.encode()) for n, v in headers]
    return harness.send("GET", path, headers=raw)


WRONG = [
    [],
    [("Authorization", "Bearer wrong")],
    [("Authorization", "Bearer ")],
    [("Authorization", "Bearer")],
    [("Authorization", "secret-one")],
    [("Authorization", "Basic secret-one")],
    [("Authorization", "Bearer secret-one x")],
    [("Authorization", "Bearer secret-on")],
    [("Authorization", b"Bearer \xff\xfe\xe9")],
    [("Authorization", b"Bearer secret-one\xa0")],
    [("Authorization", b"Bearer secret-one\x0b")],
    [("Authorization", "Bearer  secret-one")],
    [("Authorization", "Bearer\tsecret-one")],
    [("Authorization", "Bearer secret-one,")],
    [("Authorization", "Bearer secret-one"), ("Authorization", "Bearer secret-one")],
    [("X-Api-Key", "secret-one")],
]


@pytest.mark.parametrize("headers", WRONG)
def test_every_wrong_key_is_the_same_401(headers: list[tuple[str, Any]]) -> None:
    harness = Harness(say("OK"), KEYS)
    for path in PATHS:
        reply = with_headers(harness, path, *headers)
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == "Bearer"
        assert reply.json() == {
            "error": {
                "message": "a valid API key is needed: Authorization: Bearer KEY",
                "type": "authentication_error",
                "param": None,
                "code": "invalid_api_key",
            }
        }


@pytest.mark.parametrize("value", ["Bearer secret-one", "bearer secret-one", "Bearer schlüssel"])
def test_every_right_key_passes(value: str) -> None:
    reply = with_headers(Harness(say("OK"), KEYS), "/v1/models", ("Authorization", value))
    assert reply.status_code == 200


@pytest.mark.parametrize(
    "value", ["Bearer secret-one ", "Bearer secret-one\t ", " Bearer secret-one"]
)
def test_blanks_around_the_header_are_no_part_of_it(value: str) -> None:
    """RFC 9110, 5.5: whoever reads a header drops them, over a socket as here."""
    assert with_headers(Harness(say("OK"), KEYS), "/props", ("Authorization", value)).is_success
    with serving(say("OK"), KEYS) as (server, _), server.connect() as connection:
        head = f"GET /props HTTP/1.1\r\nHost: localhost\r\nAuthorization: {value}\r\n\r\n"
        connection.sendall(head.encode())
        assert status_of(connection.recv(65536)) == 200


def test_health_needs_no_key_and_no_key_is_asked_for_by_default() -> None:
    assert Harness(hold, KEYS).get("/health").status_code == 200
    assert Harness(hold).get("/v1/models").status_code == 200


def test_the_key_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        harness = Harness(say("OK"), KEYS)
        for key in ("secret-one", "wrong-key"):
            with_headers(harness, "/v1/models", ("Authorization", f"Bearer {key}"))
    assert "secret-one" not in caplog.text
    assert "wrong-key" not in caplog.text


@pytest.mark.parametrize("key", ["", " ", "a ", "\ta", "a\nb", "a\x00b", "a\x7fb"])
def test_a_key_that_no_header_can_carry_is_a_config_error(key: str) -> None:
    with pytest.raises(ConfigError, match="API key"):
        ServerConfig(api_keys=(key,))


PREFLIGHT = {
    "Origin": "http://localhost:3000",
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


def test_no_origin_is_allowed_by_default() -> None:
    harness = Harness(say("OK"))
    for origin in ("https://evil.example", "null", "http://localhost:3000"):
        reply = harness.get("/v1/models", Origin=origin)
        assert "access-control-allow-origin" not in reply.headers
    reply = harness.send("OPTIONS", "/v1/chat/completions", headers=PREFLIGHT)
    assert reply.status_code == 405
    assert "access-control-allow-origin" not in reply.headers


CORS = ServerConfig(api_keys=("key",), cors_origins=("http://localhost:3000",))


def test_an_allowed_origin_gets_its_preflight_without_a_key() -> None:
    reply = Harness(hold, CORS).send("OPTIONS", "/v1/chat/completions", headers=PREFLIGHT)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert "access-control-allow-credentials" not in reply.headers


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3001"])
def test_a_foreign_origin_gets_nothing(origin: str) -> None:
    harness = Harness(say("OK"), CORS)
    preflight = harness.send("OPTIONS", "/v1/models", headers=PREFLIGHT | {"Origin": origin})
    reply = harness.get("/v1/models", Origin=origin, Authorization="Bearer key")
    for each in (preflight, reply):
        assert "access-control-allow-origin" not in each.headers
    assert reply.status_code == 200


def test_errors_and_streams_carry_the_origin_too() -> None:
    harness = Harness(say("OK"), CORS)
    headers = {"Origin": "http://localhost:3000"}
    refused = harness.get("/v1/models", **headers)
    lost = harness.get("/nope", **headers, Authorization="Bearer key")
    stream = harness.send(
        "POST",
        "/v1/completions",
        json={"prompt": "a", "stream": True},
        headers=headers | {"Authorization": "Bearer key"},
    )
    assert [r.status_code for r in (refused, lost, stream)] == [401, 404, 200]
    for reply in (refused, lost, stream):
        assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"


def test_a_star_stands_alone() -> None:
    with pytest.raises(ConfigError, match="cors_origins"):
        ServerConfig(cors_origins=("*", "http://a"))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (b"localhost", "localhost"),
        (b"LocalHost:8080", "localhost"),
        (b"127.0.0.1:1", "127.0.0.1"),
        (b"[::1]:8080", "::1"),
        (b"[::1]", "::1"),
        (b"::1", "::1"),
        (b"evil.example", "evil.example"),
        (b"\xff:1", "ÿ"),
    ],
)
def test_host_names(value: bytes, name: str) -> None:
    assert host_name(value) == name


def test_a_foreign_host_is_refused_where_hosts_are_set() -> None:
    harness = Harness(say("OK"), ServerConfig(allowed_hosts=("localhost", "::1")))
    for host, status in (("evil.example", 403), ("localhost:9", 200), ("[::1]:80", 200)):
        assert harness.get("/v1/models", Host=host).status_code == status
    assert Harness(say("OK")).get("/v1/models", Host="evil.example").status_code == 200


@pytest.mark.parametrize("given", ["abc", "A-1._z", "a" * 128])
def test_a_plain_request_id_is_kept(given: str) -> None:
    harness = Harness(say("OK"))
    assert harness.get("/health", **{"X-Request-Id": given}).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a b", "a" * 129, "a;b", "é"])
def test_another_request_id_is_replaced(given: str) -> None:
    headers = [(b"X-Request-Id", given.encode())]
    reply = Harness(say("OK")).send("GET", "/nope", headers=headers)
    assert reply.headers["x-request-id"].startswith("req-")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("GET", "/", 404),
        ("GET", "/v1/models/", 404),
        ("POST", "/v1/chat/completions/", 404),
        ("GET", "/v1/models/other", 404),
        ("GET", "/v1/models/../../etc/passwd", 404),
        ("GET", "/v1/models/tiny", 200),
        ("GET", "/v1/models/small", 200),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("PUT", "/health", 405),
        ("POST", "/metrics", 405),
    ],
)
def test_routes(method: str, path: str, status: int) -> None:
    reply = Harness(say("OK")).send(method, path)
    assert reply.status_code == status
    if status != 200:
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}


def test_405_names_the_methods() -> None:
    assert Harness().get("/v1/completions").headers["allow"] == "POST"


@pytest.mark.parametrize("stream", [False, True])
def test_a_field_without_a_name_is_named_too(stream: bool) -> None:
    """Over a socket: what is no valid header would break the connection there."""
    with serving(say("OK")) as (server, _):
        body = {"prompt": "a", "x y": 1, "": 2, "stream": stream}
        reply = httpx.post(server.url + "/v1/completions", json=body)
        assert (reply.status_code, reply.headers["x-surefoot-ignored"]) == (200, "x?y, ?")


def test_an_unexpected_error_is_a_500_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def explode(stream: object) -> None:
        raise RuntimeError("/home/someone/secret.py")

    harness = Harness(explode)
    reply = harness.chat()
    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "internal_error"
    assert "RuntimeError" not in reply.text
    assert "secret" not in reply.text
    assert "secret.py" in caplog.text


def test_props_and_models() -> None:
    harness = Harness(say("OK"))
    assert harness.get("/v1/models").json() == {
        "object": "list",
        "data": [
            {"id": "tiny", "object": "model", "created": 1_700_000_000, "owned_by": "surefoot"}
        ],
    }
    props = harness.get("/props").json()
    assert props["context_length"] == 200
    assert props["threads"] == 2
