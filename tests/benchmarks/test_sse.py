from __future__ import annotations

import json

import pytest

from harness.sse import DONE, Draft, ReplyBuilder, Step, StreamError, data_of


def chunk(**fields: object) -> str:
    return json.dumps(fields)


def content(text: str, finish: str | None = None) -> str:
    return chunk(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}])


def test_events_are_cut_at_blank_lines_and_comments_dropped() -> None:
    lines = [
        b": ping\n",
        b"data: one\r\n",
        b"\r\n",
        b"event: x\n",
        b"data: two\n",
        b"data:  three\n",
    ]
    assert list(data_of(lines)) == ["one", "two\n three"]


def test_a_reply_is_built_from_its_chunks() -> None:
    builder = ReplyBuilder()
    builder.add(0.1, chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}]))
    builder.add(0.5, content("Hel"))
    builder.add(0.75, content("lo"))
    timings = {
        "prompt_ms": 400.0,
        "predicted_n": 7,
        "predicted_ms": 250.0,
        "cache_n": 16,
        "draft_n": 5,
        "draft_n_accepted": 3,
        "draft_rounds": 2,
    }
    ending = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    builder.add(0.8, chunk(choices=ending, timings=timings))
    builder.add(0.8, chunk(choices=[], usage={"prompt_tokens": 20, "completion_tokens": 7}))
    builder.add(0.8, DONE)
    reply = builder.reply()
    assert (reply.text, reply.finish_reason) == ("Hello", "stop")
    assert (reply.prompt_tokens, reply.tokens, reply.cached_tokens) == (20, 7, 16)
    assert (reply.prompt_s, reply.decode_s) == (0.4, 0.25)
    assert (reply.first_s, reply.last_s, reply.client_decode_s) == (0.5, 0.75, 0.25)
    assert reply.gaps_s == (0.25,)
    assert reply.draft == Draft(5, 3, 2)


def test_without_timings_usage_counts_and_without_usage_pieces_do() -> None:
    builder = ReplyBuilder()
    for text in "abc":
        builder.add(1.0, content(text))
    builder.add(1.0, DONE)
    assert (builder.reply().tokens, builder.reply().decode_s) == (3, None)
    builder.add(1.0, chunk(choices=[], usage={"completion_tokens": 4}))
    assert builder.reply().tokens == 4


def test_an_error_event_raises_what_it_says() -> None:
    with pytest.raises(StreamError, match="out of memory"):
        ReplyBuilder().add(0.0, chunk(error={"message": "out of memory"}))


def test_a_cut_stream_and_an_empty_reply_are_no_replies() -> None:
    cut = ReplyBuilder()
    cut.add(0.1, content("x"))
    with pytest.raises(StreamError, match="ended early"):
        cut.reply()
    empty = ReplyBuilder()
    empty.add(0.1, DONE)
    with pytest.raises(StreamError, match="empty"):
        empty.reply()


def test_pieces_with_timings_are_steps() -> None:
    builder = ReplyBuilder()
    choices = json.loads(content("x"))["choices"]
    builder.add(0.5, chunk(choices=choices, timings={"predicted_n": 1, "predicted_ms": 0.0}))
    later = {"predicted_n": 4, "predicted_ms": 30.0, "draft_rounds": 1}
    builder.add(0.6, chunk(choices=choices, timings=later))
    builder.add(0.7, content("y"))
    builder.add(0.8, DONE)
    assert builder.reply().steps == (Step(1, 0.0, 0), Step(4, 0.03, 1))
