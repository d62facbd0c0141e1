"""The one thread that runs steps, in the order they were submitted."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from surefoot.core.step import StepResult

T = TypeVar("T")


class PendingStep:
    """The `StepHandle` of a step that the executor has queued, is running or has run."""

    def __init__(self, future: Future[StepResult]) -> None:
        self._future = future

    def result(self) -> StepResult:
        return self._future.result()


class Executor:
    """A queue of calls and a thread. A call that raises fails its future, never the thread."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call; its future holds what it returned or raised."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        self._queue.put(run)
        return future

    def close(self) -> None:
        """Run what was submitted, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            call()
