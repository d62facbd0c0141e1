"""The scheduler's loop, its KV memory and its drafts as metrics, read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from surefoot.server.state import KvBlocks, LoopCounts, ServerState


class LoopCollector:
    """A collector for a registry. Before the model is ready it says only that it is not."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        ready = self._state.status == "ok"
        yield GaugeMetricFamily("surefoot_ready", "1 when a chat would be answered.", float(ready))
        model = self._state.model
        if model is None or model.loop_counts is None:
            return
        counts = model.loop_counts()
        yield from _rows(counts)
        yield from _blocks(counts.kv)
        yield from _drafts(counts)


def _rows(counts: LoopCounts) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "surefoot_requests_running", "Rows in the decode batch.", counts.running
    )
    yield GaugeMetricFamily(
        "surefoot_requests_waiting", "Rows that wait for a place.", counts.waiting
    )


def _blocks(kv: KvBlocks) -> Iterator[Metric]:
    by_state = GaugeMetricFamily(
        "surefoot_kv_blocks",
        "Blocks of the prefix pool: free, held by rows, or kept for later prompts.",
        labels=["state"],
    )
    for state, count in (("free", kv.free), ("held", kv.held), ("kept", kv.kept)):
        by_state.add_metric([state], count)
    yield by_state
    yield GaugeMetricFamily(
        "surefoot_kv_blocks_capacity", "Blocks that the prefix pool has in all.", kv.total
    )
    yield GaugeMetricFamily(
        "surefoot_kv_blocks_reserved",
        "Blocks that the windows of running rows may take, beside the pool.",
        kv.reserved,
    )


def _drafts(counts: LoopCounts) -> Iterator[Metric]:
    for name, text, value in (
        ("draft_proposed", "Tokens proposed by prompt lookup.", counts.draft_proposed),
        ("draft_accepted", "Proposed tokens that were kept.", counts.draft_accepted),
        ("draft_rounds", "Verify rounds.", counts.draft_rounds),
        (
            "draft_paused_rounds",
            "Forwards of rows that prompt lookup had paused.",
            counts.draft_paused,
        ),
    ):
        yield CounterMetricFamily(f"surefoot_{name}", text, value)
    yield GaugeMetricFamily(
        "surefoot_draft_steps_gained",
        "Tokens of priced verify rounds less what the rounds cost, in plain steps, since start.",
        counts.steps_gained,
    )
