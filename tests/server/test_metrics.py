"""The page of `/metrics`: its form, and that its numbers are those of the replies."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.server_fakes import END, Harness, say
from surefoot.core.events import FinishReason, TokensEmitted
from surefoot.core.request import PlainText, Request, SamplingParams
from surefoot.errors import EngineError
from surefoot.server.metrics import ServerMetrics
from surefoot.server.state import ServerState


def samples(page: bytes) -> dict[str, float]:
    """Values by name and labels, as written on the page."""
    lines = [line for line in page.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_the_form_of_the_page() -> None:
    harness = Harness(say("OK"))
    harness.chat()
    harness.get('/nope"')
    reply = harness.get("/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(reply.text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    for family in families:
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        assert f"# TYPE {family.name}" in reply.text
    types = [line for line in reply.text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types)) == len(families)
    assert "_created" not in reply.text
    assert "nope" not in reply.text


def test_tokens_equal_the_summed_usage() -> None:
    harness = Harness(say("OK"))
    usages = [harness.chat().json()["usage"], harness.complete(n=3).json()["usage"]]
    harness.chat(temperature=9)
    page = samples(harness.metrics())
    for kind in ("prompt", "completion"):
        total = sum(usage[f"{kind}_tokens"] for usage in usages)
        assert page[f"surefoot_{kind}_tokens_total"] == total
    assert page["surefoot_cached_prompt_tokens_total"] == 2
    assert page['surefoot_rows_total{outcome="stop"}'] == 4
    assert page["surefoot_rows_open"] == 0
    route = 'method="POST",route="/v1/chat/completions"'
    assert page[f'surefoot_http_requests_total{{{route},status="200"}}'] == 1
    assert page[f'surefoot_http_requests_total{{{route},status="400"}}'] == 1


def test_labels_stay_few_whatever_is_asked() -> None:
    harness = Harness(say("OK"))
    for index in range(20):
        harness.send(f"M{index}", f"/p{index}")
    requests = [n for n in samples(harness.metrics()) if n.startswith("surefoot_http_requests")]
    assert requests == ['surefoot_http_requests_total{method="other",route="other",status="404"}']


def test_times_of_one_row() -> None:
    now = [0.0]
    metrics = ServerMetrics(ServerState(), lambda: now[0])
    row = metrics.open_row(Request(1, (1,), 9, SamplingParams(), PlainText()))
    for at, ids in ((2.0, (5,)), (2.0, ()), (3.0, (6, 7)), (3.5, (END,))):
        now[0] = at
        row.see(TokensEmitted(1, ids, ""))
    page = samples(metrics.render())
    assert page["surefoot_time_to_first_token_seconds_sum"] == 2.0
    assert page["surefoot_time_between_tokens_seconds_count"] == 2
    assert page["surefoot_time_between_tokens_seconds_sum"] == 0.5 + 0.5
    assert page["surefoot_completion_tokens_total"] == 4
    assert page["surefoot_rows_open"] == 1


def test_outcomes() -> None:
    def by_choice(stream: object) -> None:
        choice = stream.request.sampling.choice
        if choice == 0:
            stream.emit(65, END)
        elif choice == 1:
            stream.emit(65)
            stream.finish(FinishReason.LENGTH)
        else:
            stream.fail(EngineError("broke"))

    harness = Harness(by_choice)
    harness.chat(n=3)
    page = samples(harness.metrics())
    outcomes = {o: page[f'surefoot_rows_total{{outcome="{o}"}}'] for o in ("stop", "length")}
    assert outcomes == {"stop": 1, "length": 1}
    assert page['surefoot_rows_total{outcome="failed"}'] == 1


@dataclass
class Blocks:
    total: int = 40
    free: int = 30
    held: int = 6
    kept: int = 4
    reserved: int = 9


@dataclass
class Counts:
    running: int = 2
    waiting: int = 3
    draft_proposed: int = 10
    draft_accepted: int = 7
    draft_rounds: int = 4
    draft_paused: int = 5
    steps_gained: float = -1.5
    kv: Blocks = field(default_factory=Blocks)


@pytest.mark.parametrize("alive", [True, False])
def test_the_loop_is_read_when_asked(alive: bool) -> None:
    harness = Harness(loop_counts=Counts, alive=lambda: alive)
    page = samples(harness.metrics())
    assert page["surefoot_ready"] == alive
    assert page["surefoot_requests_running"] == 2
    assert page["surefoot_requests_waiting"] == 3
    assert page["surefoot_draft_proposed_total"] == 10
    assert page["surefoot_draft_accepted_total"] == 7
    assert page["surefoot_draft_rounds_total"] == 4
    assert page["surefoot_draft_paused_rounds_total"] == 5
    assert page["surefoot_draft_steps_gained"] == -1.5
    states = {s: page[f'surefoot_kv_blocks{{state="{s}"}}'] for s in ("free", "held", "kept")}
    assert states == {"free": 30, "held": 6, "kept": 4}
    assert page["surefoot_kv_blocks_capacity"] == 40
    assert page["surefoot_kv_blocks_reserved"] == 9


def test_before_the_model_is_ready() -> None:
    page = samples(ServerMetrics(ServerState()).render())
    assert page["surefoot_ready"] == 0
    assert "surefoot_requests_running" not in page
