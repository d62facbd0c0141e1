"""What clients see when the engine goes wrong, fault by fault, over real sockets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from support.faulty_engine import DETAIL, Fault, FaultyEngine
from support.flood_runs import FloodedServer, flooded
from support.live_server import TIMEOUT_S
from surefoot.config import SchedulerConfig
from surefoot.scheduling.scheduler import Scheduler
from surefoot.server.limits import ReplyLimits, ServerConfig

ROW_FAULTS = (Fault.FORWARD, Fault.NAN, Fault.MEMORY, Fault.LENGTH, Fault.NOTHING)
BAD, GOOD = "!bad", "good"
ON_THE_PROMPT, IN_THE_REPLY = 1, len(BAD) + 6


@contextmanager
def faulty(
    fault: Fault, at: int, config: ServerConfig | None = None, num_windows: int = 2
) -> Iterator[tuple[FloodedServer, FaultyEngine]]:
    engine = FaultyEngine(fault, at, num_windows=num_windows, capacity=128, vocab=128)
    scheduler = Scheduler(engine, SchedulerConfig(num_windows))
    with flooded(scheduler, config=config, context_length=128) as live:
        try:
            yield live, engine
        finally:
            engine.release()


def complete(live: FloodedServer, prompt: str) -> httpx.Response:
    body = {"prompt": prompt, "max_tokens": 20, "temperature": 0}
    return httpx.post(live.url + "/v1/completions", json=body, timeout=TIMEOUT_S)


def stream(live: FloodedServer, prompt: str) -> tuple[int, list[str]]:
    """Status, and the lines that are not empty."""
    body = {"prompt": prompt, "max_tokens": 20, "temperature": 0, "stream": True}
    with (
        httpx.Client(timeout=TIMEOUT_S) as client,
        client.stream("POST", live.url + "/v1/completions", json=body) as reply,
    ):
        return reply.status_code, [line for line in reply.iter_lines() if line]


def text_of(reply: httpx.Response) -> str:
    text: str = reply.json()["choices"][0]["text"]
    return text


def error_of(line: str) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(line.removeprefix("data: "))["error"]
    return error


def health(live: FloodedServer) -> int:
    return httpx.get(live.url + "/health", timeout=TIMEOUT_S).status_code


@pytest.fixture(scope="module")
def good_text() -> str:
    with faulty(Fault.FORWARD, 10**6) as (live, _):
        return text_of(complete(live, GOOD))


def expected_error(fault: Fault) -> tuple[int, str]:
    return (503, "out_of_memory") if fault is Fault.MEMORY else (500, "engine_error")


@pytest.mark.parametrize("fault", ROW_FAULTS)
def test_a_fault_in_the_prompt_is_a_status(fault: Fault, good_text: str) -> None:
    status, code = expected_error(fault)
    with faulty(fault, ON_THE_PROMPT) as (live, _):
        whole = complete(live, BAD)
        assert (whole.status_code, whole.json()["error"]["code"]) == (status, code)
        assert ("retry-after" in whole.headers) is (status == 503)
        streamed, (line,) = stream(live, BAD)
        assert (streamed, json.loads(line)["error"]["code"]) == (status, code)
        assert DETAIL not in whole.text + line
        assert text_of(complete(live, GOOD)) == good_text
        assert health(live) == 200
        assert live.account.once
        assert live.account.outcomes == {"failed": 2, "length": 1}


@pytest.mark.parametrize("fault", ROW_FAULTS)
def test_a_fault_in_the_reply_ends_its_stream_with_an_event_and_no_other(
    fault: Fault, good_text: str
) -> None:
    with faulty(fault, IN_THE_REPLY) as (live, _):
        beside: list[str] = []
        asker = threading.Thread(target=lambda: beside.append(text_of(complete(live, GOOD))))
        asker.start()
        status, (*chunks, last) = stream(live, BAD)
        asker.join(TIMEOUT_S)
        assert (status, error_of(last)["code"]) == (200, expected_error(fault)[1])
        assert chunks
        assert all('"finish_reason":null' in chunk for chunk in chunks)
        assert DETAIL not in last
        assert beside == [good_text]
        assert text_of(complete(live, GOOD)) == good_text
        assert health(live) == 200
        assert live.account.outcomes == {"failed": 1, "length": 2}


@pytest.mark.parametrize("fault", [Fault.SUBMIT, Fault.RESULT])
def test_an_engine_that_is_gone_ends_every_reply_and_is_not_healthy(fault: Fault) -> None:
    """One place: the others wait in the queue, and are told too."""
    with faulty(fault, IN_THE_REPLY, num_windows=1) as (live, _):
        ends: list[Any] = []
        askers = [threading.Thread(target=lambda: ends.append(complete(live, BAD)))]
        askers += [
            threading.Thread(target=lambda: ends.append(complete(live, GOOD))) for _ in range(3)
        ]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join(TIMEOUT_S)
        codes = {reply.json().get("error", {}).get("code") for reply in ends}
        assert "engine_error" in codes
        assert codes <= {"engine_error", "not_ready", None}
        assert DETAIL not in "".join(reply.text for reply in ends)
        assert health(live) == 503
        assert complete(live, GOOD).status_code == 500
        assert "surefoot_ready 0.0" in httpx.get(live.url + "/metrics").text
        assert live.account.once


def test_a_step_that_hangs_runs_into_the_reply_s_limit_and_the_loop_comes_back(
    good_text: str,
) -> None:
    config = ServerConfig(reply=ReplyLimits(max_idle_s=0.3, keepalive_s=0.05))
    with faulty(Fault.HANG, IN_THE_REPLY, config) as (live, engine):
        status, (*_, last) = stream(live, BAD)
        assert (status, error_of(last)["code"]) == (200, "timeout")
        waiting = complete(live, GOOD)
        assert (waiting.status_code, waiting.json()["error"]["code"]) == (503, "timeout")
        engine.release()
        assert text_of(complete(live, GOOD)) == good_text
        live.settle()
        assert live.account.once


def test_a_slow_step_keeps_its_stream_alive_with_comments() -> None:
    config = ServerConfig(reply=ReplyLimits(keepalive_s=0.02, status_wait_s=0.01))
    with faulty(Fault.HANG, IN_THE_REPLY, config) as (live, engine):
        body = {"prompt": BAD, "max_tokens": 20, "temperature": 0, "stream": True}
        with (
            httpx.Client(timeout=TIMEOUT_S) as client,
            client.stream("POST", live.url + "/v1/completions", json=body) as reply,
        ):
            lines = (line for line in reply.iter_lines() if line)
            assert engine.hanging.wait(TIMEOUT_S)
            before = []
            while not (before and before[-1].startswith(":")):
                before.append(next(lines))
            engine.release()
            *_, last = lines
        assert last == "data: [DONE]"


def test_a_shutdown_does_not_wait_for_a_step_that_hangs() -> None:
    config = ServerConfig(drain_timeout_s=0.1)
    with faulty(Fault.HANG, IN_THE_REPLY, config) as (live, engine):
        told: list[tuple[int, list[str]]] = []
        asker = threading.Thread(target=lambda: told.append(stream(live, BAD)))
        asker.start()
        assert engine.hanging.wait(TIMEOUT_S)
        live.server.server.stop()
        asker.join(TIMEOUT_S)
        live.server.thread.join(TIMEOUT_S)
        assert not live.server.thread.is_alive()
        assert not live.loop.shutdown(drain=False, timeout=0.0)
        ((status, (*_, last)),) = told
        assert (status, error_of(last)["code"]) == (200, "not_ready")
        assert live.account.once
