"""Each limit of a body: its refusal's status, field, and a message with the value and the limit.
What takes a socket to see stands in `test_server_limits_live` and `test_server_protocol`."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from support.server_fakes import ByteTokenizer, Harness, say
from surefoot.errors import ConfigError
from surefoot.server.limits import (
    MAX_TIME_S,
    BodyLimits,
    ConnectionLimits,
    ReplyLimits,
    RequestLimits,
    ServerConfig,
)

CONFIG = ServerConfig(
    body=BodyLimits(max_body_bytes=20_000, max_json_depth=8),
    request=RequestLimits(
        max_messages=5,
        max_parts=6,
        max_prompts=3,
        max_n=4,
        max_rows=6,
        max_prompt_tokens=20,
        max_logit_bias=2,
        max_stop=3,
        max_stop_chars=9,
        max_stop_token_ids=2,
    ),
)
USER = {"role": "user", "content": "a"}
PART = {"type": "text", "text": ""}


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


CHAT: list[tuple[dict[str, Any], str | None, str]] = [
    ({"messages": [USER] * 6}, "messages", "messages holds 6 messages; the limit is 5"),
    (
        {"messages": [{"role": "user", "content": [PART] * 7}]},
        "messages",
        "messages hold 7 content parts; the limit is 6",
    ),
    ({"n": 5}, "n", "n must be an integer from 1 to 4; got 5"),
    (
        {"logit_bias": {"1": 1, "2": 1, "3": 1}},
        "logit_bias",
        "logit_bias holds 3 entries; the limit is 2",
    ),
    ({"stop": ["a", "b", "c", "d"]}, "stop", "stop holds 4 strings; the limit is 3"),
    (
        {"stop": "aaaaaaaaaa"},
        "stop",
        'stop must be a string of 1 to 9 characters; got "aaaaaaaaaa"',
    ),
    ({"stop_token_ids": [1, 2, 3]}, "stop_token_ids", "stop_token_ids holds 3 ids; the limit is 2"),
    (
        {"messages": [{"role": "user", "content": "a" * 20}]},
        "messages",
        "the prompt holds 27 tokens; this server's limit is 20",
    ),
    ({"x": nested(8)}, None, "the body is nested deeper than the limit of 8 levels"),
    ({"x": nested(300)}, None, "the body is nested deeper than the limit of 8 levels"),
]

COMPLETION: list[tuple[dict[str, Any], str | None, str]] = [
    ({"prompt": ["a"] * 4}, "prompt", "prompt holds 4 prompts; the limit is 3"),
    (
        {"prompt": ["a"] * 3, "n": 3},
        "prompt",
        "3 prompts with n 3 ask for 9 choices; the limit is 6",
    ),
    ({"best_of": 1_000_000}, "best_of", "best_of must be an integer from 1 to 4; got 1000000"),
    ({"prompt": [1] * 21}, "prompt", "the prompt holds 21 tokens; this server's limit is 20"),
]


@pytest.fixture(scope="module")
def harness() -> Harness:
    return Harness(say("OK"), CONFIG)


def expect_400(harness: Harness, reply: httpx.Response, param: str | None, message: str) -> None:
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["param"], error["message"]) == (param, message)
    assert error["type"] == "invalid_request_error"
    assert harness.sink.requests == []


@pytest.mark.parametrize(("body", "param", "message"), CHAT)
def test_a_chat_beyond_a_limit(
    harness: Harness, body: dict[str, Any], param: str | None, message: str
) -> None:
    expect_400(harness, harness.chat(**body), param, message)


@pytest.mark.parametrize(("body", "param", "message"), COMPLETION)
def test_a_completion_beyond_a_limit(
    harness: Harness, body: dict[str, Any], param: str | None, message: str
) -> None:
    expect_400(harness, harness.complete(**body), param, message)


def test_everything_at_its_limit_passes() -> None:
    harness = Harness(say("OK"), CONFIG)
    chat = harness.chat(
        messages=[USER, {"role": "user", "content": [PART] * 6}],
        n=4,
        logit_bias={"1": 1, "2": 1},
        stop=["a" * 9, "b", "c"],
        stop_token_ids=[1, 2],
        x=nested(7),
    )
    completion = harness.complete(prompt=[[1] * 20, "a", "b"], n=2)
    assert (chat.status_code, completion.status_code) == (200, 200)
    assert len(harness.sink.requests) == 4 + 6


def test_n_is_also_bounded_by_all_choices_of_a_request() -> None:
    harness = Harness(say("OK"), ServerConfig(request=RequestLimits(max_rows=2)))
    expect_400(harness, harness.chat(n=3), "n", "n must be an integer from 1 to 2; got 3")


def test_a_prompt_that_cannot_fit_is_not_encoded() -> None:
    """Beyond `max_prompt_chars` the tokenizer, which would fail, is not asked."""

    class Untouched(ByteTokenizer):
        def encode(self, text: str, *, parse_special: bool, add_bos: bool) -> list[int]:
            assert len(text) <= 10, text
            return super().encode(text, parse_special=parse_special, add_bos=add_bos)

    harness = Harness(say("OK"), max_prompt_chars=10, tokenizer=Untouched())
    assert harness.complete(prompt="a" * 10).status_code == 200
    for prompt in ("a" * 11, ["a", "a" * 11], ["a" * 11, [1]]):
        reply = harness.complete(prompt=prompt)
        assert reply.status_code == 400
        error = reply.json()["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
        assert error["message"] == (
            "the prompt has 11 characters; no more than 10 can fit the tokens it may have"
        )
    assert len(harness.sink.requests) == 1
    assert harness.complete(prompt=[1] * 11).status_code == 200


def test_a_body_beyond_its_limit(harness: Harness) -> None:
    reply = harness.chat(x="a" * 20_000)
    assert reply.status_code == 413
    size = len(reply.request.content)
    assert (
        reply.json()["error"]["message"] == f"the body has {size} bytes; the limit is 20000 bytes"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, MAX_TIME_S + 1])
@pytest.mark.parametrize(
    ("section", "field"),
    [
        (ReplyLimits, "max_total_s"),
        (ReplyLimits, "max_idle_s"),
        (ConnectionLimits, "header_timeout_s"),
        (ConnectionLimits, "body_timeout_s"),
        (ConnectionLimits, "keepalive_timeout_s"),
        (ConnectionLimits, "write_stall_s"),
        (ServerConfig, "drain_timeout_s"),
    ],
)
def test_a_time_is_a_number_of_seconds_up_to_a_week(section: Any, field: str, value: float) -> None:
    name = field.removesuffix("_s") if section is ServerConfig else field
    with pytest.raises(ConfigError, match=rf"^{name} is {value}; it must be between 0") as caught:
        section(**{field: value})
    assert caught.value.param == name


def test_props_shows_every_limit(harness: Harness) -> None:
    limits = harness.get("/props").json()["limits"]
    assert limits["request"]["max_messages"] == 5
    assert limits["body"] == {
        "max_body_bytes": 20_000,
        "max_buffered_bytes": 128 * 2**20,
        "max_json_depth": 8,
    }
    assert limits["reply"]["max_idle_s"] == 600
    assert limits["connection"]["max_connections"] == 512
