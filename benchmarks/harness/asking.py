"""Asks every arm the same, one after the other, and writes down what came back."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier
from typing import Any

from harness.arms import OFF, OFF_AGAIN, Arm
from harness.client import chat_body
from harness.comparison import Block, Rate
from harness.machine import CpuTimes
from harness.pace import paced_rate
from harness.runs import RunFolder
from harness.sse import Reply
from harness.workloads import Item

MIN_TOKENS = 8
"""Replies shorter than this are too short to time; their blocks are left out."""

Sampling = Mapping[str, Any]
GREEDY: Sampling = {"temperature": 0.0}


@dataclass(frozen=True, slots=True)
class Ask:
    """What one block asks, and in which sitting (`harness.comparison`). More than one item: all at
    once, as parallel streams."""

    workload: str
    question: str
    round: int
    items: tuple[Item, ...]
    sampling: Sampling = field(default_factory=lambda: GREEDY)
    sitting: int = 0

    @property
    def variant(self) -> int | None:
        return self.sampling.get("seed")


@dataclass(frozen=True, slots=True)
class Answer:
    """One block: each arm's replies, in the order of the items."""

    ask: Ask
    replies: Mapping[str, tuple[Reply, ...]]

    def block(self, metric: str) -> Block | None:
        """None where some arm's reply is too short. `metric` is "server" (the server's own decode
        time) or "client" (first piece of text to last); parallel streams are timed by the client,
        from the first token of any to the last of all."""
        rates = {}
        for arm, replies in self.replies.items():
            if min(reply.tokens for reply in replies) < MIN_TOKENS:
                return None
            rates[arm] = reply_rate(replies[0], metric) if len(replies) == 1 else joint(replies)
        return Block(self.ask.question, self.ask.variant, rates, self.ask.sitting)

    def paced_block(self) -> Block | None:
        """One stream's tokens and plain steps of its own (`harness.pace`). None where some arm's
        reply has too few of those, or there are several streams."""
        rates = {}
        for arm, replies in self.replies.items():
            rate = paced_rate(replies[0]) if len(replies) == 1 else None
            if rate is None:
                return None
            rates[arm] = rate
        return Block(self.ask.question, self.ask.variant, rates, self.ask.sitting)

    def stream_block(self, index: int, metric: str) -> Block | None:
        """The same for one of several parallel streams."""
        single = {arm: (replies[index],) for arm, replies in self.replies.items()}
        return Answer(self.ask, single).block(metric)


def reply_rate(reply: Reply, metric: str) -> Rate:
    if metric == "server" and reply.decode_s:
        return Rate(reply.tokens, reply.decode_s)
    return Rate(reply.tokens - 1, max(reply.client_decode_s, 1e-6))


def joint(replies: Sequence[Reply]) -> Rate:
    first = min(reply.first_s for reply in replies)
    last = max(reply.last_s for reply in replies)
    return Rate(sum(reply.tokens for reply in replies) - 1, max(last - first, 1e-6))


class Asker:
    """Asks in an order drawn anew for each block; one arm is asked twice, for the noise floor:
    `again` is its name and the name of its second asking.

    One request (or one group of parallel streams) is under way at a time, with a pause before
    each, so that an idle server's workers have gone to sleep. `cold` keeps servers from using
    what they remember of a prompt. `fields` go into every body.
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        folder: RunFolder,
        seed: int,
        pause_s: float,
        again: tuple[str, str] = (OFF, OFF_AGAIN),
        cold: bool = False,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        self._arms = {arm.name: arm for arm in arms}
        self._folder = folder
        self._random = random.Random(seed)
        self._pause_s = pause_s
        self._again = again
        self._cold = cold
        self._fields = dict(fields or {})
        self._asked = 0
        self._pids = [arm.pid for arm in arms if arm.pid is not None]
        self.others_cores: list[float] = []

    def warm(self, items: Sequence[Item]) -> None:
        """Every prompt once on every server, so that no arm reads one for the first time."""
        for item in items:
            for arm in self._arms.values():
                arm.endpoint.stream_chat(chat_body(item.messages, 2, GREEDY))

    def answer(self, ask: Ask, skip: Sequence[str] = ()) -> Answer:
        """`skip` names arms left out of this block. Raises what the client raises."""
        twice, second = self._again
        names = [name for name in [*self._arms, second] if name not in skip]
        order = self._random.sample(names, len(names))
        replies = {}
        for place, name in enumerate(order):
            time.sleep(self._pause_s)
            arm = self._arms[twice if name == second else name]
            before = CpuTimes.now(self._pids)
            replies[name] = stream_together(arm, ask, self._extra())
            others = CpuTimes.now(self._pids).others_since(before)
            self._record(ask, name, place, replies[name], others)
        return Answer(ask, {name: replies[name] for name in names})

    def _extra(self) -> dict[str, Any]:
        """Fields of every body; a cold prompt takes llama-server's, and a salt of our own each
        time."""
        if not self._cold:
            return self._fields
        self._asked += 1
        return {**self._fields, "cache_prompt": False, "cache_salt": f"cold-{self._asked}"}

    def _record(
        self,
        ask: Ask,
        arm: str,
        place: int,
        replies: Sequence[Reply],
        others: float | None,
    ) -> None:
        if others is not None and self._pids:
            self.others_cores.append(others)
        for item, reply in zip(ask.items, replies, strict=True):
            self._folder.append(
                {
                    "workload": ask.workload,
                    "question": ask.question,
                    "item": item.id,
                    "round": ask.round,
                    "sitting": ask.sitting,
                    "sampling": dict(ask.sampling),
                    "arm": arm,
                    "place": place,
                    "others_cores": others,
                    "reply": reply,
                }
            )


def stream_together(arm: Arm, ask: Ask, extra: Mapping[str, Any]) -> tuple[Reply, ...]:
    """The replies to all items of one ask, sent at once; `extra` fields and the arm's own go into
    each body."""
    fields = {**ask.sampling, **extra, **arm.fields}
    bodies = [chat_body(item.messages, item.max_tokens, fields) for item in ask.items]
    if len(bodies) == 1:
        return (arm.endpoint.stream_chat(bodies[0]),)
    gate = Barrier(len(bodies))

    def ask_one(body: Mapping[str, Any]) -> Reply:
        gate.wait()
        return arm.endpoint.stream_chat(body)

    with ThreadPoolExecutor(len(bodies)) as pool:
        return tuple(pool.map(ask_one, bodies))
