"""Clients of a soak: each does one random thing after the other until the time is over.

Knows what to ask and what must come back; not how the server is doing, which `soak_watch` sees.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.bad_requests import NO_REPLY, bad_request
from harness.flooding import Tally, Visitor, fault_of
from harness.known_requests import Known, Texts, ask
from harness.raw_http import exchange
from harness.runs import RunFolder
from harness.settling import get
from harness.sse import StreamError

ACTIONS = {"whole": 25, "streamed": 25, "leaves": 20, "bad": 25, "looks": 5}
"""What a client does next, with weights."""
LOOKS = ("/health", "/metrics", "/props", "/v1/models")
BAD_PATIENCE_S = 2.0
"""A mutated body may be a good one that asks for a whole context: the client leaves then."""
VISITOR_TOKENS = 48
MAX_KEPT = 20


@dataclass
class Findings:
    """What the clients saw. `wrong` are texts that parted from what was known."""

    done: Counter[str] = field(default_factory=Counter)
    tally: Tally = field(default_factory=Tally)
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Soaker:
    """`known` maps each known request to its texts. `max_prompt`: characters of those who leave."""

    def __init__(
        self,
        url: str,
        known: Mapping[Known, Texts],
        folder: RunFolder,
        findings: Findings,
        max_prompt: int = 600,
    ) -> None:
        self._url = url
        self._known = known
        self._requests = list(known)
        self._folder = folder
        self._findings = findings
        self._max_prompt = max_prompt
        self._began = time.monotonic()

    def run(self, seed: int, seconds: float) -> None:
        """One client's life."""
        rng = random.Random(seed)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            action = rng.choices(list(ACTIONS), list(ACTIONS.values()))[0]
            began = time.monotonic()
            try:
                outcome = self._act(action, rng)
            except (OSError, StreamError, http.client.HTTPException) as error:
                outcome = f"{type(error).__name__}: {error}"
                with self._findings.lock:
                    self._findings.failed.append(f"{action}: {outcome}")
            self._note(action, outcome, began)

    def _act(self, action: str, rng: random.Random) -> str:
        if action == "bad":
            return self._send_bad(rng.randrange(10**9))
        if action == "leaves":
            seed = rng.randrange(10**9)
            Visitor(self._url, seed, self._max_prompt, VISITOR_TOKENS).visit(self._findings.tally)
            return "left"
        if action == "looks":
            path = rng.choice(LOOKS)
            return f"{path} {get(self._url, path).status}"
        return self._ask_known(rng.choice(self._requests), action == "streamed")

    def _ask_known(self, known: Known, stream: bool) -> str:
        texts = ask(self._url, known, stream)
        if texts == self._known[known]:
            return "as known"
        with self._findings.lock:
            self._findings.wrong.append(parting(known, self._known[known], texts))
        return "another text"

    def _send_bad(self, seed: int) -> str:
        asked = bad_request(seed)
        tally = self._findings.tally
        try:
            reply = exchange(self._url, asked.data, asked.cut, BAD_PATIENCE_S)
        except TimeoutError:
            tally.add(asked.kind, NO_REPLY)
            return "left it"
        fault = fault_of(asked, reply)
        tally.add(asked.kind, reply.status, None if fault is None else f"seed {seed}: {fault}")
        return str(reply.status)

    def _note(self, action: str, outcome: str, began: float) -> None:
        now = time.monotonic()
        record: dict[str, Any] = {
            "at_s": round(began - self._began, 3),
            "took_s": round(now - began, 3),
            "action": action,
            "outcome": outcome,
        }
        with self._findings.lock:
            self._findings.done[action] += 1
            self._folder.append(record)


def parting(known: Known, wanted: Texts, got: Texts) -> str:
    return f"request {known.number}: {got!r} where {wanted!r} was known; {dict(known.body)!r}"


def soak(soaker: Soaker, num_clients: int, seed: int, seconds: float) -> None:
    """All clients at once, for so long."""
    threads = [
        threading.Thread(target=soaker.run, args=(seed + number, seconds))
        for number in range(num_clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def reference(url: str, requests: Sequence[Known]) -> dict[Known, Texts]:
    """Each request alone, one after the other."""
    return {known: ask(url, known, stream=False) for known in requests}
