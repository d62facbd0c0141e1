"""Any JSON in any field: a 200 or a 4xx in OpenAI's shape, never a fault of ours, nothing held."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.server_fakes import END, FakeStream, Harness
from surefoot.server.schema import ChatBody, CompletionBody
from surefoot.server.unsupported import SILENT

FIELDS = sorted({*ChatBody.model_fields, *CompletionBody.model_fields, *SILENT, "unknown"})

numbers = st.one_of(
    st.integers(-3, 300),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, 1, 2, 1e-300, 1e300, 2**63, 2**64, -(2**63)]),
)
texts = st.one_of(st.text(max_size=8), st.sampled_from(["user", "text", "<|end|>", "1", "\x00"]))
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(texts, inner, max_size=4),
        st.fixed_dictionaries({"role": inner, "content": inner}),
        st.fixed_dictionaries({"type": st.just("text"), "text": inner}),
    ),
    max_leaves=8,
)
bodies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=6)


def finish(stream: FakeStream) -> None:
    stream.emit(*"aé".encode(), 257, END, *b"more", *[97] * stream.request.max_tokens)


HARNESS = Harness(finish)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chat=st.booleans(), valid=st.booleans(), body=bodies)
def test_any_json_body(chat: bool, valid: bool, body: dict[str, Any]) -> None:
    needed: dict[str, Any] = {"prompt": "a"}
    if chat:
        needed = {"messages": [{"role": "user", "content": "a"}]}
    if valid:
        body = body | needed
    reply = HARNESS.post("/v1/chat/completions" if chat else "/v1/completions", body)
    assert reply.status_code in (200, 400, 404), (reply.text, body)
    if reply.status_code == 200:
        assert valid or set(needed) <= set(body)
    else:
        error = reply.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert len(error["message"]) < 1000
    assert HARNESS.app.state.api.live.num_groups == 0
    assert all(stream.ended for stream in HARNESS.sink.streams)
    HARNESS.sink.streams.clear()


@settings(max_examples=80, deadline=None)
@given(body=st.one_of(st.binary(max_size=64), values.map(lambda v: json.dumps(v).encode())))
def test_any_bytes(body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    reply = HARNESS.send("POST", "/v1/chat/completions", content=body, headers=headers)
    assert reply.status_code == 400
    assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
