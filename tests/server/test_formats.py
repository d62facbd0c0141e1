"""A choice in OpenAI's two forms, held against the schemas that `/openapi.json` shows."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from support.server_fakes import ByteTokenizer
from surefoot.core.request import TokenLogprobs
from surefoot.server.apis.openai_chat import ChatFormat
from surefoot.server.apis.openai_completions import CompletionFormat
from surefoot.server.generation import Envelope, Json
from surefoot.server.openapi_replies import reply_schemas

IDS = tuple(b"ab")
LOGPROBS = (TokenLogprobs(-0.5, ((97, -0.5), (120, -2.0))), TokenLogprobs(-0.25, ()))
ENVELOPE = Envelope("x-1", 5, "tiny")


def valid(name: str, content: Json) -> bool:
    schema = {
        "$ref": f"#/components/schemas/{name}",
        "components": {"schemas": reply_schemas()},
    }
    return bool(jsonschema_rs.validator_for(schema).is_valid(content))


def test_a_chat_stream_opens_with_the_role_and_ends_with_the_reason() -> None:
    form = ChatFormat(ByteTokenizer())
    choices = [form.opening(1), form.delta(1, "ab", IDS, None), form.ending(1, "length")]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"content": "ab"},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, "length"]
    assert all(choice["index"] == 1 for choice in choices)
    for choice in choices:
        assert valid("ChatChunk", ENVELOPE.wrap(form.chunk_name, [choice]))


def test_a_whole_chat_choice_has_a_message_and_its_log_probabilities() -> None:
    form = ChatFormat(ByteTokenizer())
    choice: Any = form.whole(0, "ab", IDS, LOGPROBS, "stop")
    assert choice["message"] == {"role": "assistant", "content": "ab", "refusal": None}
    first, second = choice["logprobs"]["content"]
    assert (first["token"], first["logprob"], first["bytes"]) == ("a", -0.5, [97])
    assert [top["token"] for top in first["top_logprobs"]] == ["a", "x"]
    assert second["top_logprobs"] == []
    assert form.whole(0, "ab", IDS, None, "stop")["logprobs"] is None


def test_a_completion_opens_with_its_echo_and_counts_places_from_there() -> None:
    form = CompletionFormat(ByteTokenizer(), ["so: ", ""])
    opening: Any = form.opening(0)
    assert opening["text"] == "so: "
    assert form.opening(1) is None
    delta: Any = form.delta(1, "ab", IDS, LOGPROBS)
    assert delta["logprobs"]["tokens"] == ["a", "b"]
    assert delta["logprobs"]["token_logprobs"] == [-0.5, -0.25]
    assert delta["logprobs"]["text_offset"] == [0, 1]
    again: Any = form.delta(1, "ab", IDS, LOGPROBS)
    assert again["logprobs"]["text_offset"] == [2, 3]
    ending = form.ending(1, "stop")
    assert (ending["text"], ending["finish_reason"]) == ("", "stop")
    for choice in (opening, delta, ending):
        assert valid("CompletionChunk", ENVELOPE.wrap(form.chunk_name, [choice]))


@pytest.mark.parametrize("broken", [{"surplus": 1}, {"finish_reason": "tired"}, {"index": -1}])
def test_the_schemas_are_closed(broken: Json) -> None:
    form = ChatFormat(ByteTokenizer())
    choice = form.delta(0, "ab", IDS, None) | broken
    assert not valid("ChatChunk", ENVELOPE.wrap(form.chunk_name, [choice]))
