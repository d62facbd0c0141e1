"""What `/metrics` shows. One registry per server, nothing global.

Token counters equal the summed `usage` of the replies: a prompt counts once however many choices
it has, and completion tokens count as they are emitted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from surefoot.core.events import Event, Failed, TokensEmitted
from surefoot.core.request import Request
from surefoot.server.connection_metrics import ConnectionMetrics
from surefoot.server.loop_metrics import LoopCollector
from surefoot.server.state import ServerState

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

FIRST_TOKEN_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
BETWEEN_TOKENS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1, 5)
REPLY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class ServerMetrics:
    """Counts requests and rows; reads the scheduler's loop when scraped."""

    def __init__(self, state: ServerState, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._registry = registry = CollectorRegistry()
        self.http_requests = Counter(
            "surefoot_http_requests",
            "HTTP requests by route, method and status.",
            ["route", "method", "status"],
            registry=registry,
        )
        self._count_rows(registry)
        self._count_tokens(registry)
        self._measure_times(registry)
        self.connections = ConnectionMetrics(registry)
        registry.register(LoopCollector(state))

    def _count_rows(self, registry: CollectorRegistry) -> None:
        self.rows = Counter(
            "surefoot_rows",
            "Choices that ended, by how: stop, length, cancelled or failed.",
            ["outcome"],
            registry=registry,
        )
        for outcome in ("stop", "length", "cancelled", "failed"):
            self.rows.labels(outcome)
        self.open_rows = Gauge(
            "surefoot_rows_open", "Choices accepted and not ended.", registry=registry
        )

    def _count_tokens(self, registry: CollectorRegistry) -> None:
        self.prompt_tokens = Counter(
            "surefoot_prompt_tokens", "Prompt tokens, as in usage.", registry=registry
        )
        self.cached_tokens = Counter(
            "surefoot_cached_prompt_tokens",
            "Prompt tokens that were not read again.",
            registry=registry,
        )
        self.completion_tokens = Counter(
            "surefoot_completion_tokens", "Completion tokens, as in usage.", registry=registry
        )

    def _measure_times(self, registry: CollectorRegistry) -> None:
        self.first_token_s = Histogram(
            "surefoot_time_to_first_token_seconds",
            "From submission to a choice's first token.",
            buckets=FIRST_TOKEN_BUCKETS,
            registry=registry,
        )
        self.between_tokens_s = Histogram(
            "surefoot_time_between_tokens_seconds",
            "Between emissions of a choice, divided by the tokens of the later one.",
            buckets=BETWEEN_TOKENS_BUCKETS,
            registry=registry,
        )
        self.reply_s = Histogram(
            "surefoot_row_seconds",
            "From submission to the end of a choice.",
            buckets=REPLY_BUCKETS,
            registry=registry,
        )

    def open_row(self, request: Request) -> RowClock:
        self.open_rows.inc()
        return RowClock(self, first_copy=request.sampling.choice == 0, clock=self._clock)

    def render(self) -> bytes:
        return generate_latest(_WithoutCreated(self._registry))


class RowClock:
    """A `RowMeter`: one row's tokens and times into the shared metrics."""

    def __init__(
        self, metrics: ServerMetrics, first_copy: bool, clock: Callable[[], float]
    ) -> None:
        self._metrics = metrics
        self._first_copy = first_copy
        self._clock = clock
        self._started = clock()
        self._last: float | None = None
        self._num_tokens = 0

    def see(self, event: Event) -> None:
        if isinstance(event, TokensEmitted):
            self._emitted(len(event.token_ids))
            return
        metrics = self._metrics
        metrics.open_rows.dec()
        metrics.reply_s.observe(self._clock() - self._started)
        if isinstance(event, Failed):
            metrics.rows.labels("failed").inc()
            return
        metrics.rows.labels(str(event.reason)).inc()
        metrics.completion_tokens.inc(max(0, event.completion_tokens - self._num_tokens))
        if self._first_copy:
            metrics.prompt_tokens.inc(event.prompt_tokens)
            metrics.cached_tokens.inc(event.timings.cache_n)

    def _emitted(self, num_tokens: int) -> None:
        if num_tokens == 0:
            return
        now = self._clock()
        if self._last is None:
            self._metrics.first_token_s.observe(now - self._started)
        else:
            self._metrics.between_tokens_s.observe((now - self._last) / num_tokens)
        self._last = now
        self._num_tokens += num_tokens
        self._metrics.completion_tokens.inc(num_tokens)


class _WithoutCreated:
    """The registry without the `_created` samples, which double the page and which the plain
    text format shows as families of their own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for family in self._registry.collect():
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family
