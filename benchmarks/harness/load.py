"""Many requests at once: a closed loop that keeps a fixed number of them under way."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from harness.client import Body, Endpoint, HttpError
from harness.comparison import Rate, jain_index, percentile
from harness.sse import Reply, StreamError


@dataclass(frozen=True, slots=True)
class Load:
    """What one server did with one batch of requests, `wall_s` seconds from first to last."""

    replies: tuple[Reply, ...]
    failures: tuple[str, ...]
    wall_s: float

    @property
    def rate(self) -> Rate:
        return Rate(sum(reply.tokens for reply in self.replies), self.wall_s)


@dataclass(frozen=True, slots=True)
class Latency:
    """Over all requests of one or more loads. Times in milliseconds, speeds in tokens per second.

    A gap is the time between successive pieces of text of one reply: the tokens of a verify round
    come as one piece, so with speculation gaps are longer and fewer.
    """

    requests: int
    failures: int
    first_p50: float
    first_p95: float
    gap_p50: float
    gap_p95: float
    slowest: float
    median: float
    fastest: float
    fairness: float


def run_load(endpoint: Endpoint, bodies: Sequence[Body], concurrency: int) -> Load:
    """Send all bodies in order, `concurrency` at a time. A request that fails is counted and told,
    not raised."""

    def ask(body: Body) -> Reply | str:
        try:
            return endpoint.stream_chat(body)
        except (HttpError, StreamError, OSError, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"

    began = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        results = list(pool.map(ask, bodies))
    wall_s = time.perf_counter() - began
    replies = tuple(result for result in results if isinstance(result, Reply))
    failures = tuple(result for result in results if isinstance(result, str))
    return Load(replies, failures, wall_s)


def latency_of(loads: Iterable[Load]) -> Latency:
    """Raises `ValueError` if no request was answered."""
    loads = list(loads)
    replies = [reply for load in loads for reply in load.replies]
    if not replies:
        raise ValueError("no request was answered")
    first = sorted(1000.0 * reply.first_s for reply in replies)
    gaps = sorted(1000.0 * gap for reply in replies for gap in reply.gaps_s) or [0.0]
    speeds = sorted(stream_speed(reply) for reply in replies)
    return Latency(
        requests=len(replies),
        failures=sum(len(load.failures) for load in loads),
        first_p50=percentile(first, 0.5),
        first_p95=percentile(first, 0.95),
        gap_p50=percentile(gaps, 0.5),
        gap_p95=percentile(gaps, 0.95),
        slowest=speeds[0],
        median=percentile(speeds, 0.5),
        fastest=speeds[-1],
        fairness=jain_index(speeds),
    )


def stream_speed(reply: Reply) -> float:
    """Tokens per second from the first piece of text on."""
    return (reply.tokens - 1) / max(reply.client_decode_s, 1e-6)
