"""Recorded replies: what replay walks.

Owns the trace's form, one JSON object a line. `read_traces` and `write_traces` are its only file
access.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Trace:
    """One reply. `prompt` and `emitted` are token ids; the first emitted token came from prefill.

    `max_tokens` is the limit the reply ran under (None: it ended at its limit, so the limit was
    `len(emitted)`), and `end_ids` the tokens that would have ended it: both bound the proposals
    near the end. A reply that a stop string or an end token ended has a larger `max_tokens` than
    it used. `capacity` is the row's window, None for one that never bound. Raises `ConfigError`.
    """

    prompt: tuple[int, ...]
    emitted: tuple[int, ...]
    max_tokens: int | None = None
    end_ids: frozenset[int] = frozenset()
    capacity: int | None = None
    name: str = ""

    def __post_init__(self) -> None:
        _require(bool(self.prompt), "prompt", self.prompt, "at least one token")
        _require(bool(self.emitted), "emitted", self.emitted, "at least one token")
        if self.max_tokens is not None:
            _require(
                self.max_tokens >= len(self.emitted),
                "max_tokens",
                self.max_tokens,
                f"at least the {len(self.emitted)} tokens emitted",
            )
        early = [index for index, token in enumerate(self.emitted[:-1]) if token in self.end_ids]
        _require(not early, "emitted", early, "without an end token before its last token")

    @property
    def token_limit(self) -> int:
        """The most tokens the reply could have had."""
        return len(self.emitted) if self.max_tokens is None else self.max_tokens

    def to_json(self) -> str:
        """One line, without its end."""
        fields: dict[str, Any] = {"name": self.name} if self.name else {}
        fields |= {"prompt": list(self.prompt), "emitted": list(self.emitted)}
        if self.max_tokens is not None:
            fields["max_tokens"] = self.max_tokens
        if self.end_ids:
            fields["end_ids"] = sorted(self.end_ids)
        if self.capacity is not None:
            fields["capacity"] = self.capacity
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Trace:
        """`{prompt: [ids], emitted: [ids]}`, and optionally `max_tokens`, `end_ids`, `capacity`,
        `name`; other keys are ignored. Raises `ConfigError`."""
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"the trace is not JSON: {error}", param="trace") from error
        _require(isinstance(fields, dict), "trace", type(fields).__name__, "a JSON object")
        name = fields.get("name", "")
        _require(isinstance(name, str), "name", name, "text")
        return cls(
            prompt=_token_ids(fields, "prompt"),
            emitted=_token_ids(fields, "emitted"),
            max_tokens=_optional_int(fields, "max_tokens"),
            end_ids=frozenset(_token_ids(fields, "end_ids") if "end_ids" in fields else ()),
            capacity=_optional_int(fields, "capacity"),
            name=name,
        )


def read_traces(path: Path) -> list[Trace]:
    """Every non-blank line of a JSONL file, compressed if its name ends in `.gz`. Raises
    `ConfigError` naming file and line, and `OSError`."""
    traces = []
    packed = path.suffix == ".gz"
    text = gzip.decompress(path.read_bytes()).decode() if packed else path.read_text("utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            traces.append(Trace.from_json(line))
        except ConfigError as error:
            raise ConfigError(f"{path}, line {number}: {error}", param=error.param) from error
    return traces


def write_traces(traces: Iterable[Trace], path: Path, *, append: bool = False) -> None:
    """One line a trace; `append` keeps what the file holds."""
    with path.open("a" if append else "w", encoding="utf-8") as file:
        file.writelines(trace.to_json() + "\n" for trace in traces)


def _token_ids(fields: dict[str, Any], field: str) -> tuple[int, ...]:
    ids = fields.get(field)
    valid = isinstance(ids, list) and all(type(token) is int and token >= 0 for token in ids)
    _require(valid, field, ids, "a list of token ids")
    return tuple(ids or ())


def _optional_int(fields: dict[str, Any], field: str) -> int | None:
    value = fields.get(field)
    _require(
        value is None or (type(value) is int and value >= 1), field, value, "a number of tokens"
    )
    return value if type(value) is int else None


def _require(holds: bool, field: str, value: object, limit: str) -> None:
    if not holds:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        raise ConfigError(f"{field} is {shown}; it must be {limit}", param=field)
