"""The one thread that runs steps, in the order they were submitted."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from surefoot.core.step import StepResult
from surefoot.errors import EngineError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class PendingStep:
    """The `StepHandle` of a step that the executor has queued, is running or has run."""

    def __init__(self, future: Future[StepResult]) -> None:
        self._future = future

    def result(self) -> StepResult:
        return self._future.result()


class Executor:
    """A queue of calls and a thread. A call that raises fails its future, never the thread; it is
    logged too, for not every caller reads its future."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call; its future holds what it returned or raised. Raises `EngineError` once
        the executor is closed: nothing would ever run the call."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                logger.exception("a call to the engine failed")
                future.set_exception(error)

        with self._lock:
            if self._closed:
                raise EngineError("the engine is closed")
            self._queue.put(run)
        return future

    def close(self) -> None:
        """Run what was submitted, then end the thread."""
        with self._lock:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            call()
