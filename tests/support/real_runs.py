"""Requests to the default model, and the scheduler over it: what the equivalence tests share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from support.lookup_texts import Diaries
from surefoot.config import EngineConfig, SchedulerConfig
from surefoot.core.events import Event, Failed, TokensEmitted
from surefoot.core.request import PlainText, Request, SamplingParams
from surefoot.engine.engine import Engine
from surefoot.loading.model import LoadedModel
from surefoot.scheduling.proposing import PromptLookup
from surefoot.scheduling.scheduler import Scheduler
from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.replay.traces import Trace
from surefoot.text.template.chat import ChatTemplate
from surefoot.text.tokenizer import Tokenizer

CAPACITY = 256
GREEDY = SamplingParams(temperature=0.0)
SEEDED = SamplingParams(temperature=0.8, top_p=0.95, seed=1)

COPY = "Repeat exactly: the grey cat sat on the wall, the grey cat ran off the wall."
ASK = "Describe a rainbow."
TELL = "Tell a short story about a lighthouse."


def open_real_engine(model: LoadedModel, graphs: Path, *, deterministic: bool) -> Engine:
    config = EngineConfig(num_windows=2, capacity=CAPACITY, deterministic=deterministic)
    return Engine(model.spec, model.weights, model.fingerprint, graphs, config)


def chat_request(
    model: LoadedModel, request_id: int, text: str, max_tokens: int, params: SamplingParams
) -> Request:
    """One user turn, ended by the model's own end tokens."""
    tokenizer = Tokenizer.from_gguf_metadata(model.metadata)
    template = ChatTemplate.from_gguf_metadata(model.metadata)
    assert template is not None
    prompt = template.encode_chat(tokenizer, [{"role": "user", "content": text}])
    return Request(
        request_id, tuple(prompt), max_tokens, params, PlainText(), frozenset(tokenizer.end_ids)
    )


class RealRun:
    """The scheduler over a real engine to the end of all its requests. `config` None decodes
    plainly."""

    def __init__(
        self, engine: Engine, requests: Sequence[Request], config: PromptLookupConfig | None
    ) -> None:
        self.diaries = None if config is None else Diaries(config)
        self._scheduler = Scheduler(
            engine, SchedulerConfig(max_rows=engine.num_windows), PromptLookup(self.diaries)
        )
        self._events: list[Event] = []
        for request in requests:
            self._scheduler.add(request)
        self.requests = {request.request_id: request for request in requests}
        while self._scheduler.has_work:
            self._events += self._scheduler.tick()
            self._scheduler.check()
        failed = [event for event in self._events if isinstance(event, Failed)]
        assert not failed, failed

    def tokens(self, request_id: int) -> tuple[int, ...]:
        return tuple(
            token
            for event in self._events
            if isinstance(event, TokensEmitted) and event.request_id == request_id
            for token in event.token_ids
        )

    def trace(self, request_id: int) -> Trace:
        request = self.requests[request_id]
        return Trace(
            prompt=request.prompt_ids,
            emitted=self.tokens(request_id),
            max_tokens=request.max_tokens,
            end_ids=request.end_ids,
            capacity=CAPACITY,
        )
