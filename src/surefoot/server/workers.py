"""Threads for work that would hold up the event loop: large JSON, long prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

NUM_THREADS = 2
"""Encoding releases the GIL; more threads would only take cores from the engine."""


class Workers:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="surefoot-worker")

    async def run(self, work: Callable[[], Result]) -> Result:
        """The result of `work()`, computed on another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Give up what has not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)
