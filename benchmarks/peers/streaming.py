"""Tokens from engines that call back, as an iterator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Queue
from threading import Thread

Put = Callable[[list[int]], None]


def streamed(run: Callable[[Put], None]) -> Iterator[list[int]]:
    """What `run(put)` puts, while it runs on a thread of its own. Raises what `run` raises."""
    pieces: Queue[list[int] | BaseException | None] = Queue()

    def work() -> None:
        try:
            run(pieces.put)
        except BaseException as error:
            pieces.put(error)
        else:
            pieces.put(None)

    worker = Thread(target=work)
    worker.start()
    while (piece := pieces.get()) is not None:
        if isinstance(piece, BaseException):
            raise piece
        yield piece
    worker.join()
