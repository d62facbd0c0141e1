"""The server over the real loop and scheduler, when the engine or the clients misbehave."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import httpx

from support.fakes import ScriptedEngine
from support.live_server import TIMEOUT_S, LiveLoop, looping
from support.server_fakes import END, TOKENIZER
from surefoot.core.step import RowPlan, StepPlan

REPLY = "a scripted reply"


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text, parse_special=False, add_bos=False)


def engine(num_windows: int = 2, **changes: Any) -> ScriptedEngine:
    replies = {tuple(ids("hi")): [*ids(REPLY), END]}
    return ScriptedEngine(num_windows, 400, vocab=128, replies=replies, **changes)


@contextmanager
def streaming(live: LiveLoop, **body: Any) -> Iterator[Iterator[str]]:
    """The data lines of a streamed completion of "hi"."""
    with httpx.Client(base_url=live.url, timeout=TIMEOUT_S) as client:
        asked = {"prompt": "hi", "temperature": 0, "max_tokens": 50, "stream": True} | body
        with client.stream("POST", "/v1/completions", json=asked) as reply:
            yield (line[len("data: ") :] for line in reply.iter_lines() if line)


def complete(live: LiveLoop, **body: Any) -> httpx.Response:
    asked = {"prompt": "hi", "temperature": 0, "max_tokens": 50} | body
    return httpx.post(live.url + "/v1/completions", json=asked, timeout=TIMEOUT_S)


def text_of(reply: httpx.Response) -> str:
    text: str = reply.json()["choices"][0]["text"]
    return text


def test_a_failing_forward_ends_its_stream_with_an_error_and_no_other() -> None:
    def fault(plan: StepPlan, row: RowPlan) -> str | None:
        return "NaN logits" if row.end == len("bad") + 4 and row.row_id == bad_row else None

    bad_row = 1
    with looping(engine(fault=fault)) as live:
        with streaming(live, prompt="bad") as lines:
            *chunks, last = list(lines)
        assert len(chunks) >= 1
        assert json.loads(last)["error"]["code"] == "engine_error"
        assert text_of(complete(live)) == REPLY
        assert httpx.get(live.url + "/health").status_code == 200


def test_a_dead_engine_ends_every_reply_and_turns_health_red() -> None:
    scripted = engine(num_windows=1, manual=True)
    with looping(scripted) as live:
        replies: list[httpx.Response] = []
        askers = [threading.Thread(target=lambda: replies.append(complete(live))) for _ in range(3)]
        for asker in askers:
            asker.start()
        while live.server.app.state.api.live.num_groups < 3:
            scripted.wait_until_read(0)
        scripted.dead = RuntimeError("the executor is gone")
        scripted.finish_all()
        for asker in askers:
            asker.join(TIMEOUT_S)
        assert [r.json()["error"]["code"] for r in replies] == ["engine_error"] * 3
        assert "executor" not in "".join(r.text for r in replies)
        health = httpx.get(live.url + "/health")
        assert (health.status_code, health.json()) == (503, {"status": "failed"})
        assert complete(live).status_code == 500


class LongForward:
    """The forward that fills position 40 takes until `done` is set."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def __call__(self, plan: StepPlan, row: RowPlan) -> None:
        assert row.end != 40 or self.done.wait(TIMEOUT_S), "no test ended the forward"


def leave_within(live: LiveLoop, forward: LongForward) -> None:
    """Stream, leave during the long forward, and end that once the server has noticed."""
    handled = f'method="POST",route="/v1/completions",status="200"}} {num_handled(live) + 1}.0'
    with streaming(live, prompt="endless", max_tokens=390, ignore_eos=True) as lines:
        assert json.loads(next(lines))["choices"][0]["finish_reason"] is None
    while handled not in httpx.get(live.url + "/metrics").text:
        continue
    forward.done.set()


def num_handled(live: LiveLoop) -> int:
    page = httpx.get(live.url + "/metrics").text
    found = re.search(r'route="/v1/completions",status="200"} (\d+)', page)
    return int(found[1]) if found else 0


def test_a_client_that_leaves_gives_its_place_to_the_next() -> None:
    forward = LongForward()
    with looping(engine(num_windows=1, fault=forward)) as live:
        leave_within(live, forward)
        assert text_of(complete(live)) == REPLY
        stats = live.loop.stats()
        assert (stats.running, stats.waiting, stats.requests_cancelled) == (0, 0, 1)
        assert stats.completion_tokens <= 40 + len(REPLY) + 1


def test_a_full_queue_is_a_503_and_those_before_it_are_answered() -> None:
    scripted = engine(num_windows=1, manual=True)
    with looping(scripted, max_queue_depth=1) as live:
        replies: list[httpx.Response] = []
        askers = [threading.Thread(target=lambda: replies.append(complete(live))) for _ in range(2)]
        for asker in askers:
            asker.start()
        while live.server.app.state.api.live.num_groups < 2:
            scripted.wait_until_read(0)
        for body in ({}, {"stream": True}):
            refused = complete(live, **body)
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "queue_full"
        scripted.finish_all()
        for asker in askers:
            asker.join(TIMEOUT_S)
        assert [text_of(reply) for reply in replies] == [REPLY, REPLY]


def test_counters_equal_the_summed_usage_whoever_leaves() -> None:
    forward = LongForward()
    with looping(engine(fault=forward)) as live:
        usage = [complete(live).json()["usage"], complete(live, n=2).json()["usage"]]
        leave_within(live, forward)
        while live.server.app.state.api.live.num_groups:
            assert complete(live, max_tokens="wrong").status_code == 400
        page = httpx.get(live.url + "/metrics").text
        stats = live.loop.stats()
        answered = sum(each["completion_tokens"] for each in usage)
        assert answered == 3 * (len(REPLY) + 1)
        assert answered < stats.completion_tokens <= answered + 40
        assert f"surefoot_completion_tokens_total {float(stats.completion_tokens)}" in page
        assert f"surefoot_prompt_tokens_total {float(2 * len('hi') + len('endless'))}" in page
        assert 'surefoot_rows_total{outcome="cancelled"} 1.0' in page
        assert "surefoot_rows_open 0.0" in page
        assert "surefoot_requests_running 0.0" in page


def test_more_at_once_than_rows_answer_as_alone() -> None:
    prompts = [f"prompt {index}" for index in range(12)]
    with looping(engine(num_windows=4)) as live:
        alone = [text_of(complete(live, prompt=prompt)) for prompt in prompts]
        together: dict[str, str] = {}

        def ask(prompt: str) -> None:
            together[prompt] = text_of(complete(live, prompt=prompt))

        askers = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join(TIMEOUT_S)
        assert [together[prompt] for prompt in prompts] == alone


def test_every_piece_tells_its_timings_where_asked() -> None:
    """(Pieces merge where the client is slower; the end token has no text.)"""
    with looping(engine()) as live:
        with streaming(live, timings_per_token=True) as lines:
            chunks = [json.loads(line) for line in lines if line != "[DONE]"]
        with streaming(live) as lines:
            untold = [json.loads(line) for line in lines if line != "[DONE]"]
    *pieces, end = chunks
    counted = [piece["timings"]["predicted_n"] for piece in pieces]
    lengths = accumulate(len(piece["choices"][0]["text"]) for piece in pieces)
    assert all(0 <= told - length <= 1 for told, length in zip(counted, lengths, strict=True))
    assert end["timings"]["predicted_n"] == len(REPLY) + 1
    assert ["timings" in chunk for chunk in untold] == [False] * (len(untold) - 1) + [True]


def test_text_that_was_held_back_for_a_stop_tells_its_timings_too() -> None:
    """The reply ends in the beginning of a stop string, so its last piece comes with its end."""
    stop = REPLY[-2:] + "?"
    with looping(engine()) as live, streaming(live, timings_per_token=True, stop=[stop]) as lines:
        chunks = [json.loads(line) for line in lines if line != "[DONE]"]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == REPLY
    assert all("timings" in chunk for chunk in chunks)
