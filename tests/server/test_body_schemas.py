"""The request bodies as `/openapi.json` shows them: this server's limits stand in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest

from surefoot.server.limits import RequestLimits
from surefoot.server.openapi_bodies import CHAT_EXAMPLE, COMPLETION_EXAMPLE, Schema
from surefoot.server.openapi_bodies import chat_body as chat_schema
from surefoot.server.openapi_bodies import completion_body as completion_schema

LIMITS = replace(RequestLimits(), max_messages=2, max_n=3, max_stop=2, max_prompts=2)


def valid(schema: Schema, body: Any) -> bool:
    return bool(jsonschema_rs.validator_for(schema).is_valid(body))


def test_the_examples_are_bodies() -> None:
    assert valid(chat_schema(LIMITS), CHAT_EXAMPLE)
    assert valid(completion_schema(LIMITS), COMPLETION_EXAMPLE)


@pytest.mark.parametrize(
    ("field", "within", "beyond"),
    [
        ("messages", CHAT_EXAMPLE["messages"] * 2, CHAT_EXAMPLE["messages"] * 3),
        ("messages", CHAT_EXAMPLE["messages"], []),
        ("n", 3, 4),
        ("n", None, 0),
        ("stop", ["a", "b"], ["a", "b", "c"]),
        ("stop", "a", ""),
        ("logit_bias", {"7": -100}, {"7": -101}),
        ("logit_bias", {"0": 1}, {"07": 1}),
        ("temperature", 2.0, -0.1),
        ("stream_options", {"include_usage": True}, {"include_usage": 1}),
    ],
)
def test_a_chats_fields_have_the_servers_limits(field: str, within: Any, beyond: Any) -> None:
    schema = chat_schema(LIMITS)
    assert valid(schema, CHAT_EXAMPLE | {field: within})
    assert not valid(schema, CHAT_EXAMPLE | {field: beyond})


@pytest.mark.parametrize("prompt", ["text", [1, 2], ["a", "b"], [[1], [2, 3]]])
def test_a_prompt_has_four_forms(prompt: Any) -> None:
    assert valid(completion_schema(LIMITS), {"prompt": prompt})


@pytest.mark.parametrize("prompt", [None, [], [-1], [[]], ["a", "b", "c"], {"a": 1}])
def test_and_no_others(prompt: Any) -> None:
    assert not valid(completion_schema(LIMITS), {"prompt": prompt})
