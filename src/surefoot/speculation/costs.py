"""What steps of each width cost on one machine with one model.

Owns the table, its JSON form and its conversions to plain steps. It must not know how the
seconds were measured. `load_costs` and `save_costs` are its only file access.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.errors import ConfigError

LEAST_S, MOST_S = 1e-9, 1e6
"""Seconds of a step that a table may state: within them any two have a finite ratio."""
WIDTH_DIGITS = 6


@dataclass(frozen=True, slots=True)
class CostBucket:
    """Seconds at one context length (None: stated for any). `pipelined_s`: a plain step that was
    submitted before the one in front of it was read. `synchronous_s`: a plain step that is read
    before anything else is submitted. `verify_s[width]`: a synchronous forward of `width` fed
    tokens of one row. Raises `ConfigError`."""

    context: int | None
    pipelined_s: float
    synchronous_s: float
    verify_s: Mapping[int, float]

    def __post_init__(self) -> None:
        if self.context is not None and self.context < 0:
            raise _refusal("context", self.context, "at least 0, or null for any")
        _require_seconds("pipelined_s", self.pipelined_s)
        _require_seconds("synchronous_s", self.synchronous_s)
        if not self.verify_s:
            raise _refusal("verify_s", dict(self.verify_s), "given for at least one width")
        for width, seconds in self.verify_s.items():
            if width < 1:
                raise _refusal("verify_s", width, "keyed by widths of at least 1")
            _require_seconds(f"verify_s[{width}]", seconds)

    def verify_seconds(self, width: int) -> float:
        """A width between two measured ones lies on the line between them; a width outside the
        table costs what its nearest does."""
        exact = self.verify_s.get(width)
        if exact is not None:
            return exact
        below = max((known for known in self.verify_s if known < width), default=None)
        above = min((known for known in self.verify_s if known > width), default=None)
        if below is None or above is None:
            nearest = above if below is None else below
            assert nearest is not None, "a table has at least one width"
            return self.verify_s[nearest]
        share = (width - below) / (above - below)
        return self.verify_s[below] + share * (self.verify_s[above] - self.verify_s[below])

    @property
    def relative_synchronous(self) -> float:
        """A synchronous plain step, in plain steps."""
        return self.synchronous_s / self.pipelined_s

    def relative(self, width: int) -> float:
        """A verify forward of `width` fed tokens, in plain steps."""
        return self.verify_seconds(width) / self.pipelined_s

    def round_costs(self, max_draft: int, synchronous_ticks_per_round: float) -> tuple[float, ...]:
        """What a verify round costs in all, by width from 0 to `max_draft + 1`, in plain steps.

        `relative(width) + (synchronous - 1) * s` with `s = synchronous_ticks_per_round`: the
        forward was measured unoverlapped already and the switch tick costs one plain step like
        any other, so what is lost besides is the overlap of each synchronous plain tick until
        the next prime. A table that measured synchronous steps as the faster ones loses none.
        Width 0 is no round and costs nothing.
        """
        lost = max(self.relative_synchronous - 1.0, 0.0) * synchronous_ticks_per_round
        return (0.0, *(self.relative(width) + lost for width in range(1, max_draft + 2)))


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Buckets by context length, shortest first. `source` says where the numbers came from.
    Raises `ConfigError`."""

    name: str
    source: str
    buckets: tuple[CostBucket, ...]

    def __post_init__(self) -> None:
        if not self.buckets:
            raise _refusal("buckets", [], "at least one bucket")
        contexts = [bucket.context for bucket in self.buckets]
        if None in contexts and len(contexts) > 1:
            raise _refusal("buckets", contexts, "one bucket alone if its context is null")
        if len(set(contexts)) != len(contexts):
            raise _refusal("buckets", contexts, "buckets of distinct contexts")
        ordered = sorted(self.buckets, key=lambda bucket: bucket.context or 0)
        object.__setattr__(self, "buckets", tuple(ordered))

    def bucket_for(self, context: int) -> CostBucket:
        """The bucket measured nearest to a context of `context` tokens (the shorter of two
        equally near)."""
        return min(self.buckets, key=lambda bucket: abs((bucket.context or 0) - context))

    def relative(self, width: int, context: int = 0) -> float:
        """A verify forward of `width` fed tokens at this context, in its plain steps."""
        return self.bucket_for(context).relative(width)

    def relative_synchronous(self, context: int = 0) -> float:
        """A synchronous plain step at this context, in its plain steps."""
        return self.bucket_for(context).relative_synchronous

    def round_costs(
        self, context: int, max_draft: int, synchronous_ticks_per_round: float
    ) -> tuple[float, ...]:
        """`CostBucket.round_costs` of this context's bucket."""
        return self.bucket_for(context).round_costs(max_draft, synchronous_ticks_per_round)

    def to_json(self) -> str:
        """The text `from_json` reads."""
        buckets = [
            {
                "context": bucket.context,
                "pipelined_s": bucket.pipelined_s,
                "synchronous_s": bucket.synchronous_s,
                "verify_s": {
                    str(width): bucket.verify_s[width] for width in sorted(bucket.verify_s)
                },
            }
            for bucket in self.buckets
        ]
        table = {"name": self.name, "source": self.source, "buckets": buckets}
        return json.dumps(table, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> StepCosts:
        """`{name, source, buckets: [{context, pipelined_s, synchronous_s, verify_s: {width:
        seconds}}]}`; other keys are ignored. Raises `ConfigError`."""
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"the cost table is not JSON: {error}", param="costs") from error
        if not isinstance(table, dict):
            raise _refusal("costs", type(table).__name__, "a JSON object")
        name, source = table.get("name"), table.get("source", "")
        if not isinstance(name, str) or not isinstance(source, str):
            raise _refusal("name and source", [name, source], "text")
        buckets = table.get("buckets")
        if not isinstance(buckets, list):
            raise _refusal("buckets", buckets, "a list of buckets")
        return cls(name, source, tuple(_bucket_from_json(bucket) for bucket in buckets))


def load_costs(path: Path) -> StepCosts:
    """Read a table. Raises `ConfigError` naming the file, and `OSError`."""
    try:
        return StepCosts.from_json(path.read_text(encoding="utf-8"))
    except (ConfigError, UnicodeDecodeError) as error:
        param = error.param if isinstance(error, ConfigError) else "costs"
        raise ConfigError(f"{path}: {error}", param=param) from error


def save_costs(costs: StepCosts, path: Path) -> None:
    """Write a table that `load_costs` reads."""
    path.write_text(costs.to_json(), encoding="utf-8")


def _bucket_from_json(bucket: Any) -> CostBucket:
    if not isinstance(bucket, dict):
        raise _refusal("buckets", bucket, "a list of objects")
    context = bucket.get("context")
    if context is not None and (not isinstance(context, int) or isinstance(context, bool)):
        raise _refusal("context", context, "a whole number of tokens, or null for any")
    widths = bucket.get("verify_s")
    if not isinstance(widths, dict):
        raise _refusal("verify_s", widths, "an object of seconds by width")
    verify_s: dict[int, float] = {}
    for width, seconds in widths.items():
        if not width.isdecimal() or len(width) > WIDTH_DIGITS:
            raise _refusal("verify_s", width, "keyed by widths of at least 1, in few digits")
        verify_s[int(width)] = _seconds(f"verify_s[{width}]", seconds)
    return CostBucket(
        context,
        _seconds("pipelined_s", bucket.get("pipelined_s")),
        _seconds("synchronous_s", bucket.get("synchronous_s")),
        verify_s,
    )


def _seconds(field: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _refusal(field, value, "a number of seconds")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _require_seconds(field: str, seconds: float) -> None:
    if not (math.isfinite(seconds) and seconds > 0):
        raise _refusal(field, seconds, "finite and more than 0 seconds")
    if not LEAST_S <= seconds <= MOST_S:
        raise _refusal(field, seconds, f"between {LEAST_S:g} and {MOST_S:g} seconds")


def _refusal(field: str, value: object, limit: str) -> ConfigError:
    return ConfigError(f"{field} is {reprlib.repr(value)}; it must be {limit}", param=field)
