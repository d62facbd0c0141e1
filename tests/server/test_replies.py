"""The forms of replies and chunks, field by field."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from support.server_fakes import END, FakeStream, Harness, say
from surefoot.core.events import FinishReason
from surefoot.errors import EngineError, NotReadyError, QueueFullError, SurefootError
from surefoot.server.generation import FINGERPRINT

TIMINGS = {
    "prompt_n": 9,
    "prompt_ms": 10.0,
    "prompt_per_second": 900.0,
    "predicted_n": 3,
    "predicted_ms": 20.0,
    "predicted_per_second": 150.0,
    "cache_n": 1,
}
USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 3,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 1},
}


def events(reply: httpx.Response) -> list[Any]:
    """The data of each event; `[DONE]` as None."""
    assert reply.text.endswith("\n\n")
    lines = reply.text.removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    data = [line.removeprefix("data: ") for line in lines]
    return [None if item == "[DONE]" else json.loads(item) for item in data]


def test_a_whole_chat_reply() -> None:
    reply = Harness(say("OK")).chat().json()
    assert reply.pop("id").startswith("chatcmpl-")
    assert isinstance(reply.pop("created"), int)
    assert reply == {
        "object": "chat.completion",
        "model": "tiny",
        "system_fingerprint": FINGERPRINT,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "OK", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
        "timings": TIMINGS,
    }


def test_a_whole_completion() -> None:
    reply = Harness(say("OK")).complete(prompt="123456789").json()
    assert reply.pop("id").startswith("cmpl-")
    assert isinstance(reply.pop("created"), int)
    assert reply == {
        "object": "text_completion",
        "model": "tiny",
        "system_fingerprint": FINGERPRINT,
        "choices": [{"index": 0, "text": "OK", "logprobs": None, "finish_reason": "stop"}],
        "usage": USAGE,
        "timings": TIMINGS,
    }


def test_a_streamed_chat_reply() -> None:
    reply = Harness(say("OK")).chat(stream=True)
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache, no-store"
    assert reply.headers["x-accel-buffering"] == "no"
    *chunks, done = events(reply)
    assert done is None
    assert len({(c["id"], c["created"]) for c in chunks}) == 1
    assert {(c["object"], c["model"]) for c in chunks} == {("chat.completion.chunk", "tiny")}
    assert [c["choices"] for c in chunks] == [
        [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
        for delta, reason in [
            ({"role": "assistant", "content": ""}, None),
            ({"content": "O"}, None),
            ({"content": "K"}, None),
            ({}, "stop"),
        ]
    ]
    assert ["timings" in c for c in chunks] == [False, False, False, True]
    assert chunks[-1]["timings"] == TIMINGS
    assert all("usage" not in c for c in chunks)


@pytest.mark.parametrize("options", [{}, None, {"include_usage": False}, {"include_usage": None}])
def test_no_usage_chunk_unless_asked(options: object) -> None:
    reply = Harness(say("OK")).chat(stream=True, stream_options=options)
    assert all("usage" not in c for c in events(reply)[:-1])


def test_the_usage_chunk_comes_last() -> None:
    reply = Harness(say("OK")).chat(stream=True, stream_options={"include_usage": True})
    *chunks, usage, done = events(reply)
    assert done is None
    assert (usage["choices"], usage["usage"]) == ([], USAGE)
    assert all(c["usage"] is None for c in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_text_held_back_comes_before_the_finish_chunk() -> None:
    """The stop string's start was held back; the row then ended by its length."""
    harness = Harness(lambda stream: stream.emit(*b"abc"))
    chunks = events(harness.complete(stream=True, stop="cd", max_tokens=3))[:-1]
    choices = [c["choices"][0] for c in chunks]
    assert [(c["text"], c["finish_reason"]) for c in choices] == [
        ("a", None),
        ("b", None),
        ("c", None),
        ("", "length"),
    ]


def test_choices_stream_with_their_index_and_count_their_prompt_once() -> None:
    def by_choice(stream: FakeStream) -> None:
        stream.emit(ord("a") + stream.request.sampling.choice, END)

    harness = Harness(by_choice)
    body: Any = {"stream": True, "n": 3, "stream_options": {"include_usage": True}}
    *chunks, usage, _ = events(harness.chat(**body))
    for index in range(3):
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert [c["delta"] for c in own] == [
            {"role": "assistant", "content": ""},
            {"content": "abc"[index]},
            {},
        ]
        assert [c["finish_reason"] for c in own] == [None, None, "stop"]
    assert usage["usage"]["prompt_tokens"] == 9
    assert usage["usage"]["completion_tokens"] == 6
    whole = harness.chat(n=3).json()
    assert [c["message"]["content"] for c in whole["choices"]] == ["a", "b", "c"]
    assert [c["index"] for c in whole["choices"]] == [0, 1, 2]
    assert whole["usage"] == usage["usage"]
    assert whole["timings"]["predicted_n"] == 6


def test_prompts_and_copies_are_choices_in_order() -> None:
    def spell(stream: FakeStream) -> None:
        request = stream.request
        stream.emit(request.prompt_ids[0], ord("0") + request.sampling.choice, END)

    reply = Harness(spell).complete(prompt=["ab", [ord("c")]], n=2).json()
    assert [c["text"] for c in reply["choices"]] == ["a0", "a1", "c0", "c1"]
    assert reply["usage"]["prompt_tokens"] == 3
    assert reply["usage"]["completion_tokens"] == 12


def test_echo_opens_each_choice() -> None:
    harness = Harness(say("!"))
    whole = harness.complete(prompt=["héy", [0xC3, 0xA9]], echo=True).json()
    assert [c["text"] for c in whole["choices"]] == ["héy!", "é!"]
    chunks = events(harness.complete(prompt="héy", echo=True, stream=True))[:-1]
    assert [c["choices"][0]["text"] for c in chunks] == ["héy", "!", ""]


E_ACUTE = {"token": "\ufffd", "logprob": -0.5, "top_logprobs": []}


def test_chat_logprobs_have_an_entry_for_every_token() -> None:
    choice = Harness(say("é")).chat(logprobs=True).json()["choices"][0]
    assert choice["logprobs"] == {
        "content": [
            E_ACUTE | {"bytes": [0xC3]},
            E_ACUTE | {"bytes": [0xA9]},
            {"token": "<|end|>", "logprob": -0.5, "bytes": [], "top_logprobs": []},
        ],
        "refusal": None,
    }
    entries = choice["logprobs"]["content"]
    joined = bytes(byte for entry in entries for byte in entry["bytes"])
    assert joined.decode() == choice["message"]["content"]


def test_chat_top_logprobs() -> None:
    reply = Harness(say("O")).chat(logprobs=True, top_logprobs=2).json()
    assert reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == [
        {"token": "A", "logprob": -1.0, "bytes": [65]},
        {"token": "B", "logprob": -2.0, "bytes": [66]},
    ]


def test_streamed_logprobs_are_the_whole_ones_in_pieces() -> None:
    harness = Harness(say("aé"))
    whole = harness.chat(logprobs=True, top_logprobs=1).json()["choices"][0]["logprobs"]
    chunks = events(harness.chat(logprobs=True, top_logprobs=1, stream=True))[:-1]
    pieces = [c["choices"][0]["logprobs"] for c in chunks]
    content = [entry for piece in pieces if piece for entry in piece["content"]]
    assert content == whole["content"]


def test_completion_logprobs_are_parallel_lists() -> None:
    harness = Harness(say("aéb"))
    whole = harness.complete(logprobs=1).json()["choices"][0]
    assert whole["logprobs"] == {
        "tokens": ["a", "bytes:\\xc3", "bytes:\\xa9", "b", "<|end|>"],
        "token_logprobs": [-0.5] * 5,
        "top_logprobs": [
            {"A": -1.0, "a": -0.5},
            {"A": -1.0, "bytes:\\xc3": -0.5},
            {"A": -1.0, "bytes:\\xa9": -0.5},
            {"A": -1.0, "b": -0.5},
            {"A": -1.0, "<|end|>": -0.5},
        ],
        "text_offset": [0, 1, 1, 2, 3],
    }
    chunks = events(harness.complete(logprobs=1, stream=True))[:-1]
    pieces = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0]["logprobs"]]
    for name, values in whole["logprobs"].items():
        assert [value for piece in pieces for value in piece[name]] == values


LEAKY = EngineError("onnxruntime: /home/someone/model.gguf broke")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (LEAKY, 500, "engine_error"),
        (QueueFullError("no place came free"), 503, "queue_full"),
        (SurefootError("odd"), 500, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_row_that_fails_at_once_is_a_status(
    error: SurefootError, status: int, code: str | None, stream: bool
) -> None:
    reply = Harness(lambda row: row.fail(error)).chat(stream=stream)
    assert reply.status_code == status
    assert reply.json()["error"]["code"] == code
    assert "onnx" not in reply.text
    assert "/home" not in reply.text
    assert ("retry-after" in reply.headers) == (status == 503)


def test_a_row_that_fails_later_ends_the_stream_with_an_error_event() -> None:
    def break_off(stream: FakeStream) -> None:
        stream.emit(*b"ab")
        stream.fail(LEAKY)

    *chunks, last = events(Harness(break_off).chat(stream=True))
    assert [c["choices"][0]["delta"].get("content") for c in chunks] == ["", "a", "b"]
    assert last["error"]["type"] == "server_error"
    assert last["error"]["code"] == "engine_error"
    assert "onnx" not in last["error"]["message"]


def test_one_failed_choice_fails_the_reply_and_cancels_the_others() -> None:
    def odd_ones_fail(stream: FakeStream) -> None:
        if stream.request.sampling.choice == 1:
            stream.fail(LEAKY)

    harness = Harness(odd_ones_fail)
    assert harness.chat(n=3).status_code == 500
    assert [s.cancelled.is_set() for s in harness.sink.streams] == [True, True, True]


def test_a_row_cancelled_by_the_server_is_no_reply() -> None:
    harness = Harness(lambda stream: stream.finish(FinishReason.CANCELLED))
    reply = harness.chat()
    assert reply.status_code == 503
    assert reply.json()["error"]["code"] == "not_ready"


def test_all_rows_are_accepted_or_none() -> None:
    harness = Harness()
    harness.sink.refuse_after = (2, QueueFullError("full"))
    reply = harness.chat(n=4)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert [s.cancelled.is_set() for s in harness.sink.streams] == [True, True]


def test_draining_between_parse_and_submit_is_a_503() -> None:
    harness = Harness()
    harness.sink.refuse_after = (0, NotReadyError("stopping"))
    assert harness.chat(stream=True).json()["error"]["code"] == "not_ready"
