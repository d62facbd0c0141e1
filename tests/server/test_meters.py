"""What connections and the scheduler's loop show to whoever scrapes, figure by figure."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from support.server_fakes import FakeSink, hold, served_model
from surefoot.errors import EngineError
from surefoot.runtime.loop import LoopStats
from surefoot.scheduling.storage import KvCounts
from surefoot.server.connection_metrics import REASONS, ConnectionMetrics
from surefoot.server.loop_metrics import LoopCollector
from surefoot.server.state import ServerState


@dataclass
class Scrape:
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"surefoot_{name}", labels)


def test_connections_are_counted_while_they_are_open() -> None:
    read = Scrape()
    metrics = ConnectionMetrics(read.registry)
    for _ in range(3):
        metrics.opened()
    metrics.closed()
    assert read("connections_open") == 2


def test_every_reason_for_a_refusal_is_there_from_the_start() -> None:
    read = Scrape()
    metrics = ConnectionMetrics(read.registry)
    assert [read("connections_refused_total", reason=reason) for reason in REASONS] == [0] * 4
    metrics.refused("body")
    metrics.refused("body")
    metrics.stalled()
    assert read("connections_refused_total", reason="body") == 2
    assert read("connections_refused_total", reason="headers") == 0
    assert read("connections_stalled_total") == 1


def test_before_the_model_is_there_the_loop_says_only_that_it_is_not() -> None:
    read, state = Scrape(), ServerState()
    read.registry.register(LoopCollector(state))
    assert (read("ready"), read("requests_running")) == (0, None)
    state.set_failed(EngineError("no model"))
    assert read("ready") == 0


def test_the_loops_counts_are_shown_as_they_are() -> None:
    stats = LoopStats(
        running=2,
        waiting=5,
        draft_proposed=70,
        draft_accepted=41,
        draft_rounds=11,
        draft_paused=9,
        steps_gained=12.5,
        kv=KvCounts(total=10, free=3, held=4, kept=3, reserved=7),
    )
    read, state = Scrape(), ServerState()
    read.registry.register(LoopCollector(state))
    state.set_ready(served_model(FakeSink(hold), loop_counts=lambda: stats))
    assert read("ready") == 1
    assert (read("requests_running"), read("requests_waiting")) == (2, 5)
    blocks = [read("kv_blocks", state=state_) for state_ in ("free", "held", "kept")]
    assert blocks == [3, 4, 3]
    assert (read("kv_blocks_capacity"), read("kv_blocks_reserved")) == (10, 7)
    drafts = ("proposed", "accepted", "rounds", "paused_rounds")
    assert [read(f"draft_{name}_total") for name in drafts] == [70, 41, 11, 9]
    assert read("draft_steps_gained") == 12.5
