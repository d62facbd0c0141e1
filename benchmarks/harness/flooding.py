"""Floods: many bad requests, and many clients that leave, from several threads at once.

Counts what came back and keeps what was wrong. Asks nothing of the server but HTTP.
"""

from __future__ import annotations

import json
import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from harness.bad_requests import NO_REPLY, BadRequest, bad_request, post
from harness.bad_values import CHAT_PATH, COMPLETION_PATH
from harness.raw_http import PATIENCE_S, RawReply, connect, exchange, reset

LEAKS = re.compile(rb"Traceback|site-packages|/home/|/root/|/usr/|pydantic|starlette|uvicorn|h11\.")
"""What no reply may show: a stack, a folder of the machine, a library's name."""
OUR_FAULTS = (b'"internal_error"', b'"engine_error"')
MAX_KEPT = 20
STAGES = ("headers", "body", "queue or prompt", "stream", "to the end")


@dataclass
class Tally:
    """Replies by kind and status (`NO_REPLY`: closed without one), and what was wrong with them."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    num_faults: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, status: int, fault: str | None = None) -> None:
        with self._lock:
            self.counts[kind, status] += 1
            if fault is not None:
                self.num_faults += 1
                if len(self.faults) < MAX_KEPT:
                    self.faults.append(fault)

    @property
    def by_status(self) -> Counter[int]:
        totals: Counter[int] = Counter()
        for (_, status), count in self.counts.items():
            totals[status] += count
        return totals

    @property
    def server_errors(self) -> int:
        return sum(count for status, count in self.by_status.items() if status >= 500)


def fault_of(asked: BadRequest, reply: RawReply) -> str | None:
    """What is wrong with this reply, if anything."""
    if reply.status not in asked.right:
        return f"{asked.kind}: status {reply.status}, {reply.body[:200]!r} to {asked.data[:300]!r}"
    if not reply.whole:
        return f"{asked.kind}: the reply broke off after {reply.body[:200]!r}"
    if LEAKS.search(reply.body) or any(code in reply.body for code in OUR_FAULTS):
        return f"{asked.kind}: the reply tells too much, {reply.body[:300]!r}"
    if reply.status >= 400 and reply.body and not is_openai_error(reply.body):
        return f"{asked.kind}: no OpenAI error, {reply.body[:200]!r}"
    return None


def is_openai_error(body: bytes) -> bool:
    try:
        error = json.loads(body)["error"]
        return set(error) == {"message", "type", "param", "code"} and len(error["message"]) < 1000
    except (ValueError, KeyError, TypeError):
        return False


def send_bad(url: str, seed: int, tally: Tally, patience_s: float = PATIENCE_S) -> None:
    """One bad request, from its seed."""
    asked = bad_request(seed)
    try:
        reply = exchange(url, asked.data, asked.cut, patience_s)
    except TimeoutError:
        tally.add(asked.kind, NO_REPLY, f"{asked.kind}: no end of {asked.data[:300]!r}")
        return
    fault = fault_of(asked, reply)
    tally.add(asked.kind, reply.status, None if fault is None else f"seed {seed}: {fault}")


def visitor_body(rng: random.Random, path: str, max_prompt: int, max_tokens: int) -> bytes:
    text = "word " * rng.randrange(1, max(2, max_prompt // 5))
    fields: dict[str, object] = {
        "stream": rng.random() < 0.7,
        "max_tokens": rng.randrange(1, max_tokens),
        "n": rng.choice([1, 1, 1, 2, 4]),
        "seed": rng.randrange(9),
        "temperature": rng.choice([0, 0, 0.8]),
    }
    if path == CHAT_PATH:
        fields["messages"] = [{"role": "user", "content": text}]
    else:
        fields["prompt"] = text
    if rng.random() < 0.2:
        fields["stop"] = ["e", "\n\n"]
    return json.dumps(fields).encode()


@dataclass(frozen=True, slots=True)
class Visitor:
    """A client that sends a good request, and leaves at a moment drawn from `seed`: in the
    headers, in the body, before any reply, in the stream, or after it all."""

    url: str
    seed: int
    max_prompt: int
    max_tokens: int

    def visit(self, tally: Tally) -> None:
        rng = random.Random(self.seed)
        path = rng.choice([CHAT_PATH, COMPLETION_PATH])
        body = visitor_body(rng, path, self.max_prompt, self.max_tokens)
        data = post(path, body, Connection="close")
        stage = rng.choice(STAGES)
        with connect(self.url) as connection:
            status = NO_REPLY
            with suppress(ConnectionError):
                connection.sendall(data[: num_sent(rng, stage, len(data) - len(body), len(data))])
                status = watch(connection, rng, stage)
            if rng.random() < 0.5:
                reset(connection)
        fault = None if status in (NO_REPLY, 200, 503) else f"seed {self.seed}: status {status}"
        tally.add(f"leaves: {stage}", status, fault)


def num_sent(rng: random.Random, stage: str, head: int, whole: int) -> int:
    if stage == "headers":
        return rng.randrange(1, head)
    if stage == "body":
        return rng.randrange(head, whole)
    return whole


def watch(connection: socket.socket, rng: random.Random, stage: str) -> int:
    """Wait for as much as this stage sees. The status, or `NO_REPLY`."""
    if stage == "queue or prompt":
        connection.settimeout(rng.choice([0.0005, 0.005, 0.05]))
    wanted = {"stream": rng.choice([1, 500, 5000]), "to the end": 10**9}.get(stage, 1)
    if stage in ("headers", "body"):
        return NO_REPLY
    received = b""
    while len(received) < wanted:
        try:
            data = connection.recv(65536)
        except TimeoutError:
            break
        if not data:
            break
        received += data
    return int(received.split(b" ", 2)[1]) if received.startswith(b"HTTP/1.1 ") else NO_REPLY


def in_threads(work: Callable[[int], None], seeds: Sequence[int], num_threads: int) -> None:
    """`work` on every seed, each once. Raises the first thing that any of it raised."""
    waiting = iter(seeds)
    lock = threading.Lock()
    raised: list[BaseException] = []

    def run() -> None:
        while not raised:
            with lock:
                seed = next(waiting, None)
            if seed is None:
                return
            try:
                work(seed)
            except BaseException as error:
                raised.append(error)

    threads = [threading.Thread(target=run) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
