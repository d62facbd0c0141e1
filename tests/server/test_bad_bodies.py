"""Every wrong body is one 400 that names the field; nothing reaches the runtime."""

from __future__ import annotations

from typing import Any

import pytest

from support.server_fakes import Harness, say
from surefoot.server.limits import BodyLimits, RequestLimits, ServerConfig

USER = {"role": "user", "content": "hi"}
CONFIG = ServerConfig(
    body=BodyLimits(max_body_bytes=100_000, max_json_depth=8),
    request=RequestLimits(
        max_messages=5, max_parts=6, max_prompts=3, max_rows=6, max_logit_bias=4, max_stop=3
    ),
)
OMIT = object()


@pytest.fixture(scope="module")
def harness() -> Harness:
    return Harness(say("OK"), CONFIG)


def refused(harness: Harness, path: str, body: dict[str, Any]) -> dict[str, Any]:
    before = len(harness.sink.requests)
    reply = harness.post(path, body)
    assert reply.status_code == 400, reply.text
    assert len(harness.sink.requests) == before
    error: dict[str, Any] = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


COMMON = [
    ({"temperature": "0.2"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.01}, "temperature"),
    ({"temperature": [1]}, "temperature"),
    ({"max_tokens": "16"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"n": 0}, "n"),
    ({"n": -1}, "n"),
    ({"n": 1.5}, "n"),
    ({"n": "2"}, "n"),
    ({"n": 9}, "n"),
    ({"n": 1_000_000}, "n"),
    ({"n": 128, "max_tokens": 4096}, "n"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stop": 5}, "stop"),
    ({"stop": [1]}, "stop[0]"),
    ({"stop": [["a"]]}, "stop[0]"),
    ({"stop": ["a", ""]}, "stop[1]"),
    ({"stop": ""}, "stop"),
    ({"stop": "a" * 513}, "stop"),
    ({"stop": ["a", "b", "c", "d"]}, "stop"),
    ({"seed": "x"}, "seed"),
    ({"seed": 1.5}, "seed"),
    ({"seed": False}, "seed"),
    ({"top_p": -0.1}, "top_p"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 1.5}, "top_k"),
    ({"top_k": 2**31}, "top_k"),
    ({"min_p": -0.1}, "min_p"),
    ({"min_p": 1.1}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"repetition_penalty": -1}, "repetition_penalty"),
    ({"repetition_penalty": 1e9}, "repetition_penalty"),
    ({"presence_penalty": 2.1}, "presence_penalty"),
    ({"presence_penalty": -2.1}, "presence_penalty"),
    ({"frequency_penalty": "1"}, "frequency_penalty"),
    ({"frequency_penalty": -2.1}, "frequency_penalty"),
    ({"logit_bias": {"99999999": 5}}, "logit_bias"),
    ({"logit_bias": {"258": 5}}, "logit_bias"),
    ({"logit_bias": {"-1": 5}}, "logit_bias"),
    ({"logit_bias": {"abc": 5}}, "logit_bias"),
    ({"logit_bias": {"1.5": 5}}, "logit_bias"),
    ({"logit_bias": {"01": 5}}, "logit_bias"),
    ({"logit_bias": {"٣": 5}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"logit_bias": {"5": "x"}}, "logit_bias.5"),
    ({"logit_bias": {"5": None}}, "logit_bias.5"),
    ({"logit_bias": {"5": True}}, "logit_bias.5"),
    ({"logit_bias": [[5, 1]]}, "logit_bias"),
    ({"logit_bias": {str(i): 1 for i in range(5)}}, "logit_bias"),
    ({"stop_token_ids": [99999999]}, "stop_token_ids"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
    ({"stop_token_ids": 5}, "stop_token_ids"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream_options": [], "stream": True}, "stream_options"),
    ({"stream_options": {"include_usage": 1}, "stream": True}, "stream_options.include_usage"),
    ({"ignore_eos": "no"}, "ignore_eos"),
    ({"timings_per_token": 1}, "timings_per_token"),
    ({"speculation": 0}, "speculation"),
    ({"cache_salt": 5}, "cache_salt"),
    ({"cache_salt": "a" * 257}, "cache_salt"),
    ({"priority": 101}, "priority"),
    ({"model": 5}, "model"),
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {}}, "response_format.type"),
    ({"response_format": {"type": "yaml"}}, "response_format.type"),
    ({"response_format": {"type": ["text"]}}, "response_format.type"),
]

CHAT = [
    ({"messages": OMIT}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": {"role": "user"}}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"role": 7, "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [USER, {"role": "user"}]}, "messages[1].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
        "messages[0].content[0].text",
    ),
    ({"messages": [{"role": "user", "content": "a", "name": 5}]}, "messages[0].name"),
    ({"messages": [USER] * 6}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 7}]}, "messages"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_completion_tokens": "5"}, "max_completion_tokens"),
    ({"logprobs": 1}, "logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": True}, "top_logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": False, "top_logprobs": 0}, "top_logprobs"),
]

COMPLETIONS = [
    ({"prompt": OMIT}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": {"a": 1}}, "prompt"),
    ({"prompt": [True]}, "prompt[0]"),
    ({"prompt": ["a", 5]}, "prompt[1]"),
    ({"prompt": [1, "a"]}, "prompt[1]"),
    ({"prompt": [1, 1.5]}, "prompt[1]"),
    ({"prompt": [[1], [-2]]}, "prompt[1][0]"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": [258]}, "prompt"),
    ({"prompt": ["a"] * 4}, "prompt"),
    ({"prompt": ["a"] * 3, "n": 3}, "prompt"),
    ({"logprobs": True}, "logprobs"),
    ({"logprobs": 21}, "logprobs"),
    ({"best_of": 1_000_000, "n": 1}, "best_of"),
    ({"best_of": 1, "n": 2}, "best_of"),
    ({"best_of": 0}, "best_of"),
    ({"best_of": "2"}, "best_of"),
    ({"echo": "yes"}, "echo"),
]


@pytest.mark.parametrize(("change", "param"), COMMON + CHAT)
def test_a_wrong_chat_body(harness: Harness, change: dict[str, Any], param: str) -> None:
    body = {key: v for key, v in ({"messages": [USER]} | change).items() if v is not OMIT}
    error = refused(harness, "/v1/chat/completions", body)
    assert error["param"] == param
    assert error["code"] == "invalid_value"
    assert param.partition("[")[0].partition(".")[0] in error["message"]


@pytest.mark.parametrize(("change", "param"), COMMON + COMPLETIONS)
def test_a_wrong_completion_body(harness: Harness, change: dict[str, Any], param: str) -> None:
    body = {key: value for key, value in ({"prompt": "hi"} | change).items() if value is not OMIT}
    error = refused(harness, "/v1/completions", body)
    assert error["param"] == param
    assert error["code"] == "invalid_value"


UNSUPPORTED = [
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ({"tools": 5}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": {"name": "f"}}, "function_call"),
    ({"audio": {"voice": "a"}}, "audio"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"prediction": {"type": "content"}}, "prediction"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"grammar": "root ::= a"}, "grammar"),
    ({"guided_json": {}}, "guided_json"),
    ({"response_format": {"type": "json_object"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.type"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": 5}}},
        "response_format.type",
    ),
]


@pytest.mark.parametrize(("change", "param"), UNSUPPORTED)
def test_what_is_known_and_not_served_is_refused(
    harness: Harness, change: dict[str, Any], param: str
) -> None:
    error = refused(harness, "/v1/chat/completions", {"messages": [USER]} | change)
    assert (error["param"], error["code"]) == (param, "unsupported")
    assert "not supported" in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": "a", "suffix": "b"}, "suffix"),
        ("/v1/completions", {"prompt": "a", "best_of": 3, "n": 2}, "best_of"),
        ("/v1/completions", {"prompt": "a", "echo": True, "logprobs": 0}, "echo"),
        (
            "/v1/chat/completions",
            {"messages": [USER, {"role": "assistant", "tool_calls": [{"id": "a"}]}]},
            "messages[1].tool_calls",
        ),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
        ),
        ("/v1/embeddings", {"input": "a"}, None),
        ("/v1/responses", {"input": "a"}, None),
    ],
)
def test_unsupported_in_its_place(
    harness: Harness, path: str, body: dict[str, Any], param: str | None
) -> None:
    error = refused(harness, path, body)
    assert (error["param"], error["code"]) == (param, "unsupported")


NULLABLE = """
    model max_tokens n temperature top_p top_k min_p repetition_penalty presence_penalty
    frequency_penalty seed stop stop_token_ids logit_bias stream stream_options ignore_eos
    speculation timings_per_token cache_salt priority logprobs top_logprobs max_completion_tokens
    tools tool_choice functions response_format audio modalities user best_of echo suffix
"""


def test_null_is_the_default_everywhere(harness: Harness) -> None:
    nulls = dict.fromkeys(NULLABLE.split())
    assert harness.chat(**nulls).status_code == 200
    assert harness.complete(**nulls).status_code == 200


def test_the_templates_own_message_is_passed_on(harness: Harness) -> None:
    body = {"messages": [{"role": "wizard", "content": "hi"}]}
    error = refused(harness, "/v1/chat/completions", body)
    assert (error["param"], error["message"]) == ("messages", "chat template: no wizards here")


def test_what_asks_for_nothing_passes(harness: Harness) -> None:
    reply = harness.chat(
        tools=[],
        tool_choice="none",
        parallel_tool_calls=True,
        modalities=["text"],
        response_format={"type": "text"},
        logit_bias={},
        stop=[],
        user="someone",
    )
    assert reply.status_code == 200
    assert "X-Surefoot-Ignored" not in reply.headers


def test_unknown_fields_are_named_in_a_header(harness: Harness) -> None:
    reply = harness.chat(foo=1, mirostat=2, **{"b\r\nad": 1, "naïve": 1})
    assert reply.status_code == 200
    assert reply.headers["X-Surefoot-Ignored"] == "foo, mirostat, b??ad, na?ve"
    many = harness.chat(**{f"f{i}": 1 for i in range(50)})
    assert len(many.headers["X-Surefoot-Ignored"].split(", ")) == 20


def test_the_message_holds_rule_and_value(harness: Harness) -> None:
    error = harness.chat(temperature=3.5).json()["error"]
    assert error["message"] == "temperature must be a number from 0 to 2; got 3.5"
    error = harness.chat(max_tokens="é" * 500).json()["error"]
    assert len(error["message"]) < 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"hi"',
        b"null",
        b"\xff\xfe",
        b'{"messages": NaN}',
        b'{"a": Infinity}',
        b'{"a": "\\ud800"}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": ' + b"[" * 8 + b"]" * 8 + b"}",
        b'{"a": ' + b"[" * 50_000,
        b'{"a": ' + b"[" * 40_000 + b"]" * 40_000 + b"}",
        b'{"a": ' + b'{"a":' * 9 + b"1" + b"}" * 10,
    ],
)
def test_a_body_that_is_no_flat_json_object(harness: Harness, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    reply = harness.send("POST", "/v1/chat/completions", content=body, headers=headers)
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_depth_up_to_the_limit_is_read(harness: Harness) -> None:
    deep: Any = 1
    for _ in range(7):
        deep = [deep]
    assert harness.chat(foo=deep).status_code == 200


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_only_json_is_taken(harness: Harness, content_type: str) -> None:
    body = b'{"messages": [{"role": "user", "content": "hi"}]}'
    headers = {"Content-Type": content_type} if content_type else {}
    reply = harness.send("POST", "/v1/chat/completions", content=body, headers=headers)
    assert reply.status_code == 415
    assert reply.json()["error"]["code"] == "unsupported_media_type"


def test_the_body_limit(harness: Harness) -> None:
    small = harness.chat(foo="a" * 99_000)
    large = harness.chat(foo="a" * 100_000)
    assert (small.status_code, large.status_code) == (200, 413)
    assert large.headers["connection"] == "close"
    assert "100000 bytes" in large.json()["error"]["message"]


def test_bodies_of_all_clients_together_are_bounded() -> None:
    limits = BodyLimits(max_body_bytes=2048, max_buffered_bytes=2048)
    harness = Harness(say("OK"), ServerConfig(body=limits))
    for _ in range(3):
        assert harness.chat(foo="a" * 1500).status_code == 200
