"""What the HTTP layer knows of the rest: the served model, and whether it is ready yet.

The socket listens before the model is loaded, so the application holds a `ServerState` that
becomes ready (or fails) later. The protocols name the little that the server uses of the text
and runtime packages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from surefoot.core.events import Event
from surefoot.core.request import Request, TextStepper
from surefoot.errors import EngineError, NotReadyError, SurefootError


class RequestStream(Protocol):
    """The events of one accepted request: ends after exactly one `Finished` or `Failed`."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    def cancel(self) -> None:
        """Ask the row to end after the present tick; its `Finished` still arrives."""
        ...


class RequestSink(Protocol):
    """Where requests go: the runtime's mailbox."""

    def new_request_id(self) -> int: ...

    def submit(self, request: Request) -> RequestStream:
        """Raises `QueueFullError`, or `NotReadyError` once the loop is stopping."""
        ...


class Tokenizer(Protocol):
    @property
    def vocab_size(self) -> int: ...

    @property
    def end_ids(self) -> frozenset[int]: ...

    @property
    def special_ids(self) -> frozenset[int]: ...

    @property
    def add_bos(self) -> bool: ...

    def encode(self, text: str, *, parse_special: bool, add_bos: bool) -> list[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def token_text(self, token_id: int) -> str: ...


EncodeChat = Callable[[Sequence[Mapping[str, object]]], list[int]]
"""Messages to prompt ids, the generation prompt added; raises `InvalidRequestError` with the
template's own message."""

MakeText = Callable[[Sequence[str]], TextStepper]
"""Stop strings to a fresh text stepper."""


class KvBlocks(Protocol):
    """Blocks of KV: the pool's by state, and what windows of running rows may take."""

    @property
    def total(self) -> int: ...

    @property
    def free(self) -> int: ...

    @property
    def held(self) -> int: ...

    @property
    def kept(self) -> int: ...

    @property
    def reserved(self) -> int: ...


class LoopCounts(Protocol):
    """A snapshot of the scheduler's loop: what runs, waits and is held now, drafts since start."""

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def draft_proposed(self) -> int: ...

    @property
    def draft_accepted(self) -> int: ...

    @property
    def draft_rounds(self) -> int: ...

    @property
    def draft_paused(self) -> int: ...

    @property
    def steps_gained(self) -> float: ...

    @property
    def kv(self) -> KvBlocks: ...


def always_alive() -> bool:
    return True


@dataclass(frozen=True)
class ServedModel:
    """One model, ready to answer. `encode_chat` None: the model has no chat template.
    `properties()` is what `/props` shows now; it holds no path. A text prompt of more characters
    than `max_prompt_chars` cannot fit and is not encoded."""

    id: str
    created: int
    tokenizer: Tokenizer
    encode_chat: EncodeChat | None
    make_text: MakeText
    context_length: int
    sink: RequestSink
    max_prompt_chars: int | None = None
    aliases: tuple[str, ...] = ()
    properties: Callable[[], Mapping[str, object]] = dict
    loop_counts: Callable[[], LoopCounts] | None = None
    alive: Callable[[], bool] = always_alive

    def answers_to(self, name: str) -> bool:
        return name == self.id or name in self.aliases


class ServerState:
    """Loading, then ready or failed, then perhaps draining."""

    def __init__(self) -> None:
        self._model: ServedModel | None = None
        self.failure: SurefootError | None = None
        self.draining = False

    def set_ready(self, model: ServedModel) -> None:
        assert self.failure is None, self.failure
        self._model = model

    def set_failed(self, error: SurefootError) -> None:
        """The load failed: `run_server` stops and raises this."""
        self.failure = error

    @property
    def status(self) -> str:
        """`"loading"`, `"ok"`, `"failed"` or `"draining"`, as `/health` says it."""
        if self.draining:
            return "draining"
        if self._model is None:
            return "failed" if self.failure else "loading"
        return "ok" if self._model.alive() else "failed"

    @property
    def model(self) -> ServedModel | None:
        return self._model

    def require_model(self) -> ServedModel:
        """The model, or `NotReadyError` while it loads or the server drains, or `EngineError`
        once its loop is dead."""
        status = self.status
        if status == "ok":
            assert self._model is not None
            return self._model
        if status == "failed":
            raise EngineError("the model stopped working; the server must be restarted")
        if status == "draining":
            raise NotReadyError("the server is shutting down")
        raise NotReadyError("the model is still loading")
