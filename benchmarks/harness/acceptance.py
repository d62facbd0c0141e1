"""The acceptance workloads (a) to (d) as blocks to ask, and the asking of them all."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.arms import Arm
from harness.asking import GREEDY, Answer, Ask, Asker
from harness.client import chat_body
from harness.workloads import Item, fit_filler, load_items, load_long_task

PLAIN_GREEDY, PLAIN_SAMPLED = "plain-greedy", "plain-sampled"
COPY_GREEDY, TWO_STREAMS, LONG = "copy-greedy", "two-streams", "long"
WORKLOADS = (PLAIN_GREEDY, PLAIN_SAMPLED, COPY_GREEDY, TWO_STREAMS, LONG)

SEEDS = (1, 2, 3, 4, 5)
SAMPLED = {"temperature": 0.8, "top_p": 0.95}


@dataclass(frozen=True, slots=True)
class Amount:
    """How much of it to run. `items` None: all; `max_tokens` None: as each item says."""

    rounds: int
    items: int | None = None
    max_tokens: int | None = None
    targets: tuple[int, ...] = ()
    heldout: bool = False

    def cut(self, items: Sequence[Item]) -> list[Item]:
        limit = self.max_tokens
        kept = list(items)[: self.items]
        if limit is None:
            return kept
        return [replace(item, max_tokens=min(item.max_tokens, limit)) for item in kept]

    def prompts(self, kind: str) -> list[Item]:
        return self.cut(load_items(f"{kind}_heldout" if self.heldout else kind))


def asks_of(workload: str, amount: Amount, arms: Sequence[Arm], seed: int) -> list[Ask]:
    """All blocks of a workload: rounds outermost, questions shuffled within each round."""
    order = random.Random(f"{seed} {workload}")
    groups = groups_of(workload, amount, arms)
    asks = []
    for number in range(amount.rounds):
        order.shuffle(groups)
        for items in groups:
            question = " + ".join(item.id for item in items)
            sampling = sampling_of(workload, number)
            asks.append(Ask(workload, question, number, items, sampling))
    return asks


def of_sitting(asks: Sequence[Ask], sitting: int, rounds: int) -> list[Ask]:
    """The blocks that servers number `sitting` answer, if each set of them answers so many
    rounds."""
    return [replace(ask, sitting=sitting) for ask in asks if ask.round // rounds == sitting]


def groups_of(workload: str, amount: Amount, arms: Sequence[Arm]) -> list[tuple[Item, ...]]:
    """The items of each question; two for the parallel streams."""
    if workload == TWO_STREAMS:
        return list(zip(amount.prompts("plain"), amount.prompts("copy"), strict=False))
    if workload == LONG:
        return [(item,) for item in amount.cut(long_items(amount, arms[0]))]
    kind = "copy" if workload == COPY_GREEDY else "plain"
    return [(item,) for item in amount.prompts(kind)]


def sampling_of(workload: str, number: int) -> dict[str, float]:
    if workload != PLAIN_SAMPLED:
        return dict(GREEDY)
    return {**SAMPLED, "seed": SEEDS[number % len(SEEDS)]}


def long_items(amount: Amount, arm: Arm) -> list[Item]:
    """One item a length and paragraph, its filler cut to length by asking the server."""
    task = load_long_task()
    items = []
    for target in amount.targets or task.target_tokens:
        for index in range(len(task.paragraphs)):

            def count(chars: int, target: int = target, index: int = index) -> int:
                item = task.item(target, index, chars)
                return arm.endpoint.stream_chat(chat_body(item.messages, 2, GREEDY)).prompt_tokens

            chars = fit_filler(target, count, len(task.filler))
            items.append(task.item(target, index, chars))
    return items


def run_workload(
    asker: Asker, asks: Sequence[Ask], skip: Sequence[str], tell: Callable[[str], None]
) -> list[Answer]:
    distinct = {item.id: item for ask in asks for item in ask.items}
    asker.warm(list(distinct.values()))
    answers = []
    for count, ask in enumerate(asks, start=1):
        tell(f"{ask.workload}: block {count} of {len(asks)} ({ask.question}, round {ask.round})")
        answers.append(asker.answer(ask, skip))
    return answers
