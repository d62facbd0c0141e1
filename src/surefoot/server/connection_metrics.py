"""What is counted of connections, before and beside requests. Knows no request."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

REASONS = ("headers", "body", "connections", "malformed")
"""Why a connection was refused outside the application: its headers were too large or too slow,
its body too slow, too many connections were open, or what it sent was no HTTP."""


class ConnectionMetrics:
    """A `protocol.ConnectionMeter`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._open = Gauge("surefoot_connections_open", "Connections now.", registry=registry)
        self._refused = Counter(
            "surefoot_connections_refused",
            "Connections refused before a request was whole, by reason.",
            ["reason"],
            registry=registry,
        )
        for reason in REASONS:
            self._refused.labels(reason)
        self._stalled = Counter(
            "surefoot_connections_stalled",
            "Connections cut because the client did not read its reply.",
            registry=registry,
        )

    def opened(self) -> None:
        self._open.inc()

    def closed(self) -> None:
        self._open.dec()

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def stalled(self) -> None:
        self._stalled.inc()
