"""Streams on the wire: any text, cut into tokens and rounds anywhere, is the whole reply's text."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.sse import data_of
from support.fakes import ScriptedEngine
from support.flood_runs import flooded
from support.live_server import TIMEOUT_S
from support.naive_stop import naive
from support.server_fakes import END
from surefoot.config import SchedulerConfig
from surefoot.scheduling.proposing import PromptLookup
from surefoot.scheduling.scheduler import Scheduler
from surefoot.speculation.config import PromptLookupConfig

CAPACITY = 600


class Wire:
    """A server whose engine replies as told; verify rounds and merged events group the tokens."""

    def __init__(self, engine: ScriptedEngine, url: str) -> None:
        self._engine = engine
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT_S)
        self._numbers = itertools.count()

    def prompt_for(self, reply: bytes) -> str:
        """A prompt that the reply copies from, so that drafts land; no two are alike."""
        prompt = f"{next(self._numbers)}:{reply.decode('utf-8', 'replace')}"
        self._engine.replies = {tuple(prompt.encode()): (*reply, END)}
        return prompt

    def whole(self, prompt: str, **body: Any) -> dict[str, Any]:
        reply = self._client.post("/v1/completions", json=self._body(prompt, body))
        choice: dict[str, Any] = reply.json()["choices"][0]
        return choice

    def streamed(self, prompt: str, **body: Any) -> bytes:
        asked = self._body(prompt, body) | {"stream": True}
        return self._client.post("/v1/completions", json=asked).content

    def close(self) -> None:
        self._client.close()

    def _body(self, prompt: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"prompt": prompt, "temperature": 0, "max_tokens": 250} | body


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    engine = ScriptedEngine(2, CAPACITY, vocab=256)
    lookup = PromptLookup.from_config(PromptLookupConfig())
    scheduler = Scheduler(engine, SchedulerConfig(2), lookup)
    with flooded(scheduler, context_length=CAPACITY) as live:
        wire = Wire(engine, live.url)
        yield wire
        wire.close()
        assert live.loop.stats().draft_accepted > 0


def read_stream(data: bytes) -> tuple[str, list[Any]]:
    """Joined text and the finish reasons; every line on its own must be whole UTF-8."""
    lines = data.split(b"\n")
    *chunks, last = data_of(line + b"\n" for line in lines)
    assert last == "[DONE]"
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    text = "".join(choice["text"] for choice in choices)
    return text, [choice["finish_reason"] for choice in choices]


texts = st.one_of(st.text(max_size=40), st.text("ab\r\né漢🔥:", max_size=40))
alike = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@alike
@given(text=texts, stops=st.lists(st.text("ab\né漢🔥", min_size=1, max_size=3), max_size=3))
def test_the_joined_stream_is_the_text_up_to_its_stop(
    wire: Wire, text: str, stops: list[str]
) -> None:
    prompt = wire.prompt_for(text.encode())
    wanted, _ = naive(text, stops)
    joined, reasons = read_stream(wire.streamed(prompt, stop=stops))
    assert joined == wanted
    assert reasons == [None] * (len(reasons) - 1) + ["stop"]
    whole = wire.whole(prompt, stop=stops)
    assert (whole["text"], whole["finish_reason"]) == (wanted, "stop")


@alike
@given(reply=st.binary(max_size=60), max_tokens=st.integers(1, 60))
def test_any_bytes_and_any_end_stream_as_they_are_told_whole(
    wire: Wire, reply: bytes, max_tokens: int
) -> None:
    prompt = wire.prompt_for(reply)
    joined, reasons = read_stream(wire.streamed(prompt, max_tokens=max_tokens))
    whole = wire.whole(prompt, max_tokens=max_tokens)
    assert (joined, reasons[-1]) == (whole["text"], whole["finish_reason"])
    assert reasons[-1] == ("length" if max_tokens <= len(reply) else "stop")
    decoded = reply[:max_tokens].decode("utf-8", "replace")
    assert joined in (decoded, decoded.removesuffix("\ufffd"))
