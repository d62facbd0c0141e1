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
    """A queue of calls and a thread. A call that raises fails its future, never the thread."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._doubt: str | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call; its future holds what it returned or raised. Raises `EngineError` once
        the executor is closed (nothing would ever run the call), or a posted call failed."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                if self._doubt is not None:
                    raise EngineError(self._doubt)
                future.set_result(call())
            except BaseException as error:
                logger.exception("a call to the engine failed")
                future.set_exception(error)

        with self._lock:
            if self._closed or self._doubt is not None:
                raise EngineError(self._doubt or "the engine is closed")
            self._queue.put(run)
        return future

    def post(self, call: Callable[[], None]) -> None:
        """Queue a call whose future nobody reads. If it raises, no later call runs and nothing
        more is taken: nobody knows what the memory that it should have changed holds."""

        def run() -> None:
            try:
                call()
            except BaseException as error:
                self._doubt = f"the engine's memory is in doubt ({type(error).__name__})"
                raise

        self.submit(run)

    def close(self, timeout_s: float | None = None) -> bool:
        """Run what was submitted, then end the thread. False if it hangs for so long (None: it is
        waited for); it dies with the process then."""
        with self._lock:
            self._closed = True
            self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            call()
