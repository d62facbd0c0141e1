"""What the floods run against: a server over the scripted engine that keeps an account of every
request it accepted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from support.fakes import ScriptedEngine
from support.live_server import TIMEOUT_S, LiveServer
from support.paged_runs import paged_storage
from support.server_fakes import served_model
from surefoot.config import SchedulerConfig
from surefoot.core.events import Event, Failed, TokensEmitted
from surefoot.core.request import Request
from surefoot.runtime.loop import EngineLoop, Inbox
from surefoot.runtime.mailbox import Mailbox
from surefoot.scheduling.proposing import PromptLookup
from surefoot.scheduling.scheduler import Scheduler
from surefoot.server.limits import ServerConfig
from surefoot.server.listening import default_allowed_hosts
from surefoot.speculation.config import PromptLookupConfig

CANCELLED = ("cancelled before any token", "cancelled in the reply")


@dataclass
class Account:
    """Accepted requests, and how often each has ended."""

    accepted: set[int] = field(default_factory=set)
    ends: Counter[int] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def see(self, event: Event) -> None:
        if isinstance(event, TokensEmitted):
            return
        with self.lock:
            self.ends[event.request_id] += 1
            self.outcomes["failed" if isinstance(event, Failed) else outcome_of(event)] += 1

    @property
    def once(self) -> bool:
        """Every accepted request has ended, exactly once."""
        return self.ends == Counter(dict.fromkeys(self.accepted, 1))

    @property
    def num_cancelled(self) -> int:
        return sum(self.outcomes[name] for name in CANCELLED)

    def summary(self) -> dict[str, Any]:
        return {
            "accepted": len(self.accepted),
            "ended exactly once": sum(count == 1 for count in self.ends.values()),
            "outcomes": dict(sorted(self.outcomes.items())),
        }


def outcome_of(event: Any) -> str:
    """A cancelled row's outcome says whether it had come to its first token."""
    reason = str(event.reason)
    if reason != "cancelled":
        return reason
    return CANCELLED[event.completion_tokens > 0]


class CountedInbox:
    def __init__(self, inbox: Inbox, account: Account) -> None:
        self._inbox = inbox
        self._account = account

    def put(self, events: Sequence[Event]) -> None:
        for event in events:
            self._account.see(event)
        self._inbox.put(events)


class CountedLoop(EngineLoop):
    """Hands each inbox a witness; one for all its requests, since batches go by identity."""

    def __init__(self, loop: EngineLoop, account: Account) -> None:
        self._counted = loop
        self._account = account
        self._witnesses: dict[int, CountedInbox] = {}

    def submit(self, request: Request, inbox: Inbox) -> None:
        witness = self._witnesses.setdefault(id(inbox), CountedInbox(inbox, self._account))
        self._counted.submit(request, witness)
        with self._account.lock:
            self._account.accepted.add(request.request_id)

    def cancel(self, request_id: int) -> None:
        self._counted.cancel(request_id)


class FloodedServer:
    """A server over the real loop and scheduler. `close` ends everything and runs `check()`,
    which means nothing once an engine is gone. `model` fields are `served_model`'s."""

    def __init__(
        self,
        scheduler: Scheduler,
        port: int = 0,
        config: ServerConfig | None = None,
        **model: Any,
    ) -> None:
        self.scheduler = scheduler
        self.loop = EngineLoop(scheduler)
        self.loop.start()
        self.account = Account()
        self.server = LiveServer(config, port)
        self.url = self.server.url
        self.server.state.set_ready(
            served_model(
                Mailbox(CountedLoop(self.loop, self.account)),
                loop_counts=self.loop.stats,
                alive=lambda: self.loop.healthy,
                **model,
            )
        )

    def settle(self) -> str:
        """Wait until every row that clients left behind has ended, and one more request is
        answered. The metrics page after that."""
        with httpx.Client(base_url=self.url, timeout=TIMEOUT_S) as client:
            while self.server.app.state.api.live.num_groups:
                assert client.get("/health").status_code == 200
            reply = client.post("/v1/completions", json={"prompt": "hi", "max_tokens": 3})
            assert reply.json()["usage"]["completion_tokens"] == 3, reply.text
            return client.get("/metrics").text

    def close(self) -> None:
        self.server.server.stop()
        self.server.stop()
        survived = self.loop.healthy
        assert self.loop.shutdown(drain=False, timeout=TIMEOUT_S)
        if survived:
            self.scheduler.check()


@contextmanager
def flooded(
    scheduler: Scheduler, port: int = 0, config: ServerConfig | None = None, **model: Any
) -> Iterator[FloodedServer]:
    live = FloodedServer(scheduler, port, config, **model)
    try:
        yield live
    finally:
        live.close()


@contextmanager
def flooded_script(port: int = 0) -> Iterator[FloodedServer]:
    """Over the scripted engine, with blocks and prompt lookup. Few places and short rows, so that
    clients meet a queue and rows come to their end."""
    engine = ScriptedEngine(4, 128, vocab=256, num_blocks=24)
    scheduler = Scheduler(
        engine,
        SchedulerConfig(engine.num_windows),
        PromptLookup.from_config(PromptLookupConfig()),
        storage=paged_storage(engine, total=48),
    )
    config = ServerConfig(allowed_hosts=default_allowed_hosts("127.0.0.1"))
    with flooded(scheduler, port, config, context_length=engine.capacity) as live:
        yield live


def assert_clean(live: FloodedServer) -> None:
    """Nothing is held, nothing of ours failed, and the next client is answered."""
    page = live.settle()
    assert live.account.once, live.account.summary()
    assert live.account.outcomes["failed"] == 0
    stats = live.loop.stats()
    assert (stats.running, stats.waiting) == (0, 0)
    assert "surefoot_rows_open 0.0" in page
    assert 'status="5' not in page
