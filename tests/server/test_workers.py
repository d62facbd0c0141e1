"""Work off the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from surefoot.server.workers import NUM_THREADS, Workers

TIMEOUT_S = 30.0


def test_the_loop_goes_on_while_a_worker_works() -> None:
    """The work ends only when the loop, meanwhile free, says so."""
    workers, released = Workers(), threading.Event()

    def work() -> str:
        assert released.wait(TIMEOUT_S)
        return threading.current_thread().name

    async def run() -> str:
        done = asyncio.create_task(workers.run(work))
        await asyncio.sleep(0)
        released.set()
        return await done

    try:
        assert asyncio.run(run()).startswith("surefoot-worker")
    finally:
        workers.close()


def test_what_work_raises_comes_back() -> None:
    workers = Workers()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(workers.run(lambda: 1 // 0))
    workers.close()


def test_closing_gives_up_what_has_not_begun() -> None:
    workers, released, began = Workers(), threading.Event(), []

    def work(number: int) -> None:
        began.append(number)
        assert released.wait(TIMEOUT_S)

    async def run() -> list[object]:
        tasks = [
            asyncio.create_task(workers.run(lambda number=number: work(number)))
            for number in range(NUM_THREADS + 3)
        ]
        while len(began) < NUM_THREADS:
            await asyncio.sleep(0)
        workers.close()
        released.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(run())
    assert [type(result) for result in results[NUM_THREADS:]] == [asyncio.CancelledError] * 3
    assert sorted(began) == list(range(NUM_THREADS))
