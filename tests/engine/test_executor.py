"""The thread that runs steps: order, failures, the end."""

from __future__ import annotations

import logging
import threading

import pytest

from surefoot.engine.executor import Executor
from surefoot.errors import EngineError

TIMEOUT_S = 30.0


def test_calls_run_in_order_on_one_thread() -> None:
    executor = Executor("test")
    gate = threading.Event()
    seen: list[tuple[int, str]] = []
    executor.submit(lambda: gate.wait(TIMEOUT_S))
    futures = [
        executor.submit(lambda n=n: seen.append((n, threading.current_thread().name)))
        for n in range(20)
    ]
    assert seen == []
    gate.set()
    for future in futures:
        future.result(TIMEOUT_S)
    assert seen == [(n, "test") for n in range(20)]
    executor.close()


def test_a_call_that_raises_fails_itself_alone(caplog: pytest.LogCaptureFixture) -> None:
    executor = Executor("test")
    with caplog.at_level(logging.ERROR):
        failed = executor.submit(lambda: 1 // 0)
        assert executor.submit(lambda: 7).result(TIMEOUT_S) == 7
    assert isinstance(failed.exception(TIMEOUT_S), ZeroDivisionError)
    assert "a call to the engine failed" in caplog.text
    executor.close()


def test_closing_runs_what_was_submitted() -> None:
    executor = Executor("test")
    gate = threading.Event()
    executor.submit(lambda: gate.wait(TIMEOUT_S))
    last = executor.submit(lambda: "done")
    closing = threading.Thread(target=executor.close)
    closing.start()
    gate.set()
    closing.join(TIMEOUT_S)
    assert not closing.is_alive()
    assert last.result(0) == "done"


def test_nothing_is_taken_after_closing() -> None:
    executor = Executor("test")
    executor.close()
    executor.close()
    with pytest.raises(EngineError, match="the engine is closed"):
        executor.submit(lambda: None)


def test_a_posted_call_that_fails_stops_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    """A copy of KV that did not happen would be read as if it had."""
    executor = Executor("test")
    gate = threading.Event()
    executor.submit(lambda: gate.wait(TIMEOUT_S))
    executor.post(lambda: [].pop())
    queued_behind = executor.submit(lambda: "a step over that memory")
    gate.set()
    in_doubt = r"the engine's memory is in doubt \(IndexError\)"
    with pytest.raises(EngineError, match=in_doubt):
        queued_behind.result(TIMEOUT_S)
    with pytest.raises(EngineError, match=in_doubt):
        executor.submit(lambda: None)
    assert "a call to the engine failed" in caplog.text
    assert executor.close()


def test_closing_does_not_wait_for_ever_for_a_call_that_hangs() -> None:
    executor = Executor("test")
    gate = threading.Event()
    executor.submit(lambda: gate.wait(TIMEOUT_S))
    assert not executor.close(timeout_s=0.01)
    gate.set()
    assert executor.close()
