"""Prompts: the files beside the scripts, and long contexts built from filler text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "workloads"

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt. `expected` is the text a whole copy would give, where there is one."""

    id: str
    messages: tuple[Message, ...]
    max_tokens: int
    expected: str = ""


@dataclass(frozen=True, slots=True)
class LongTask:
    """Filler text up to a token count, then a paragraph to repeat."""

    target_tokens: tuple[int, ...]
    task: str
    paragraphs: tuple[str, ...]
    max_tokens: int
    filler: str

    def item(self, target: int, index: int, filler_chars: int) -> Item:
        paragraph = self.paragraphs[index]
        filler = self.filler[:filler_chars]
        content = f"{filler}\n\n{paragraph}\n\n{self.task}"
        messages = ({"role": "user", "content": content},)
        return Item(f"long-{target}-{index}", messages, self.max_tokens, paragraph)


def load_items(name: str, limit: int | None = None) -> list[Item]:
    """The items of `workloads/NAME.json`, the first `limit` of them."""
    raw = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return [as_item(entry) for entry in raw][:limit]


def as_item(entry: dict[str, Any]) -> Item:
    return Item(entry["id"], tuple(entry["messages"]), entry["max_tokens"])


def load_long_task() -> LongTask:
    raw = json.loads((FOLDER / "long.json").read_text(encoding="utf-8"))
    return LongTask(
        tuple(raw["targets_tokens"]),
        raw["task"],
        tuple(raw["paragraphs"]),
        raw["max_tokens"],
        (FOLDER / "filler.txt").read_text(encoding="utf-8"),
    )


def fit_filler(
    target: int, count_tokens: Callable[[int], int], max_chars: int, tries: int = 3
) -> int:
    """Characters of filler with which a prompt holds about `target` tokens, and never more.

    `count_tokens(chars)` asks the server how long such a prompt is, which costs a prefill: so
    the first ask is a small one, and further asks start from the density it showed. The filler
    repeats when it is shorter than asked for; `max_chars` bounds it.
    """
    chars = min(2000, max_chars)
    base, counted = count_tokens(0), count_tokens(chars)
    best = 0
    for _ in range(tries):
        density = (counted - base) / max(chars, 1)
        chars = min(int((target - base) / max(density, 1e-3) * 0.995), max_chars)
        counted = count_tokens(chars)
        if counted <= target:
            best = max(best, chars)
            if counted >= 0.97 * target or chars == max_chars:
                break
    return best


def longest_shared_share(text: str, expected: str) -> float:
    """The share of `expected` that the reply starts with, after leading quotes and blanks."""
    reply = text.lstrip(" \n\"'")
    same = 0
    for ours, theirs in zip(reply, expected, strict=False):
        if ours != theirs:
            break
        same += 1
    return same / len(expected) if expected else 0.0


def chosen(items: Sequence[Item], ids: Sequence[str] | None) -> list[Item]:
    """Those named in `ids`, or all. Raises `KeyError` for an unknown id."""
    if not ids:
        return list(items)
    by_id = {item.id: item for item in items}
    return [by_id[name] for name in ids]
