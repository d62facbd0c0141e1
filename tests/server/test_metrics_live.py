"""`/metrics` after requests whose every number is known: real sockets, loop and scheduler."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx

from support.fakes import ScriptedEngine
from support.live_server import TIMEOUT_S, LiveLoop, looping
from support.server_fakes import END, TOKENIZER
from surefoot.scheduling.proposing import PromptLookup
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig

PHRASE = "the quick brown fox jumps"
COPY_PROMPT = f"{PHRASE}|"
"""25 letters, no run of three of them twice, and a bar: 26 tokens."""

PLAIN_PROMPT = "0123456789" * 4
COSTS = (0.0, 1.0, 1.5, 2.0, 2.5, 3.0)
"""Of a round by width, in plain steps."""


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text, parse_special=False, add_bos=False)


def engine(**changes: Any) -> ScriptedEngine:
    replies = {
        tuple(ids(COPY_PROMPT)): [*ids(PHRASE), END],
        tuple(ids(PLAIN_PROMPT)): [*ids("ABCD"), END],
    }
    return ScriptedEngine(2, 200, vocab=128, replies=replies, **changes)


def lookup(**changes: Any) -> PromptLookup:
    fields = {"max_draft": 4, "policy": DraftPolicy.GATED} | changes
    return PromptLookup.from_config(
        PromptLookupConfig(**fields), round_costs=lambda context, ticks, sampled: COSTS
    )


def ask(live: LiveLoop, prompt: str, **body: Any) -> dict[str, Any]:
    asked = {"prompt": prompt, "temperature": 0, "max_tokens": 60} | body
    reply = httpx.post(live.url + "/v1/completions", json=asked, timeout=TIMEOUT_S)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def page_of(live: LiveLoop) -> dict[str, float]:
    text = httpx.get(live.url + "/metrics", timeout=TIMEOUT_S).text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_requests_and_tokens_by_outcome() -> None:
    with looping(engine()) as live:
        ask(live, PLAIN_PROMPT)
        ask(live, PLAIN_PROMPT, max_tokens=2)
        ask(live, PLAIN_PROMPT, n=2, max_tokens=3)
        for body, status in (({"n": 0}, 400), ({"model": "other"}, 404)):
            reply = httpx.post(live.url + "/v1/completions", json={"prompt": "a"} | body)
            assert reply.status_code == status
        page = page_of(live)
    route = 'surefoot_http_requests_total{method="POST",route="/v1/completions",status='
    assert {s: page[f'{route}"{s}"}}'] for s in (200, 400, 404)} == {200: 3, 400: 1, 404: 1}
    outcomes = {o: page[f'surefoot_rows_total{{outcome="{o}"}}'] for o in ("stop", "length")}
    assert outcomes == {"stop": 1, "length": 3}
    assert page['surefoot_rows_total{outcome="failed"}'] == 0
    assert page["surefoot_prompt_tokens_total"] == 3 * 40
    assert page["surefoot_completion_tokens_total"] == 5 + 2 + 3 + 3
    assert page["surefoot_time_to_first_token_seconds_count"] == 4
    assert page["surefoot_row_seconds_count"] == 4
    assert page["surefoot_rows_open"] == 0
    assert page["surefoot_requests_running"] == page["surefoot_requests_waiting"] == 0


def test_kv_blocks_and_prefix_hits() -> None:
    """A prompt of 40 tokens and 5 of a reply, the last of them never fed: two whole blocks."""
    with looping(engine(num_blocks=8)) as live:
        before = page_of(live)
        ask(live, PLAIN_PROMPT)
        first = page_of(live)
        again = ask(live, PLAIN_PROMPT)
        second = page_of(live)
    for page, free, kept, hits in ((before, 0, 0, 0), (first, 6, 2, 0), (second, 6, 2, 32)):
        assert page['surefoot_kv_blocks{state="free"}'] == free
        assert page['surefoot_kv_blocks{state="kept"}'] == kept
        assert page['surefoot_kv_blocks{state="held"}'] == 0
        assert page["surefoot_kv_blocks_reserved"] == 0
        assert page["surefoot_cached_prompt_tokens_total"] == hits
    assert second["surefoot_kv_blocks_capacity"] == 8
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 32


def test_blocks_that_a_running_row_holds() -> None:
    scripted = engine(num_blocks=8, manual=True)
    with looping(scripted) as live, httpx.Client(base_url=live.url, timeout=TIMEOUT_S) as client:
        body = {"prompt": PLAIN_PROMPT, "max_tokens": 9, "temperature": 0, "stream": True}
        # From beside: the headers of the reply wait for its first token.
        two_steps = threading.Thread(target=lambda: [scripted.finish_step() for _ in range(2)])
        two_steps.start()
        with client.stream("POST", "/v1/completions", json=body) as reply:
            two_steps.join(TIMEOUT_S)
            lines = (line for line in reply.iter_lines() if line)
            assert json.loads(next(lines).removeprefix("data: "))["choices"][0]["text"][0] == "A"
            scripted.wait_until_read(2)
            page = page_of(live)
            scripted.finish_all()
            assert list(lines)[-1] == "data: [DONE]"
    assert page["surefoot_requests_running"] == page["surefoot_rows_open"] == 1
    states = {s: page[f'surefoot_kv_blocks{{state="{s}"}}'] for s in ("free", "held", "kept")}
    assert states == {"free": 6, "held": 2, "kept": 0}
    assert page["surefoot_kv_blocks_reserved"] == 5  # 49 tokens: four blocks and one to spare


def test_drafts_and_the_steps_they_gained() -> None:
    """The reply copies the prompt: 25 tokens and the end. Two come before a lookup finds its run
    of two. A first round of width 3 emits 3, four of width 5 emit 20, and the last finds the end
    where the prompt had its bar."""
    scripted = engine()
    with looping(scripted, prompt_lookup=lookup()) as live:
        timings = ask(live, COPY_PROMPT)["timings"]
        page = page_of(live)
    widths = [row.num_fed for plan in scripted.plans for row in plan.rows if row.start]
    rounds = [width for width in widths if width > 1]
    assert rounds == [3, 5, 5, 5, 5, 5]
    assert page["surefoot_draft_rounds_total"] == timings["draft_rounds"] == 6
    assert page["surefoot_draft_proposed_total"] == timings["draft_n"] == 2 + 5 * 4
    assert page["surefoot_draft_accepted_total"] == timings["draft_n_accepted"] == 2 + 4 * 4
    assert page["surefoot_draft_steps_gained"] == 24 - COSTS[3] - 5 * COSTS[5]
    assert page["surefoot_draft_paused_rounds_total"] == 0


def test_a_row_that_is_paused_says_so() -> None:
    with looping(engine(), prompt_lookup=lookup(start_paused=True, min_paused_span=64)) as live:
        timings = ask(live, COPY_PROMPT)["timings"]
        page = page_of(live)
    assert "draft_n" not in timings
    assert page["surefoot_draft_paused_rounds_total"] == 25  # every forward but the prompt's
    assert page["surefoot_draft_rounds_total"] == 0
    assert page["surefoot_draft_steps_gained"] == 0
