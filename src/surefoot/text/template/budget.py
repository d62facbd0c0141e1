"""How much one rendering of a chat template may do.

A template comes with a model file and messages come from clients: neither may keep the server busy
or fill its memory. Owns the counting; where it is counted is `template_sandbox`'s business.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined
from jinja2.utils import Namespace

_STEPS_PER_CLOCK_READ = 256
_WIDE_FORMAT = re.compile(r"%(\([^)%]*\))?[^a-zA-Z%]*(\d{4}|\*)|\{[^{}]*(\d{4}|\{)")
_ITEMS_PER_STEP = 8
"""Copying a list is that much cheaper, item by item, than going through it in a template."""
_MAX_INT_BITS = 65_536


class RenderLimitError(Exception):
    """The template asked for more than the limits allow; the message says of what."""


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """`max_steps`: loop rounds, calls and list items looked at. `max_chars`: characters of all
    strings that operators, filters and calls make, output included; `chars_per_input_char` more
    for each character of the messages. A message through a ChatML template takes 2 steps; a
    million steps took 1 to 3 s (two slow cores). `max_seconds` is for what the counts do not
    see."""

    max_steps: int = 1_000_000
    max_chars: int = 16_000_000
    chars_per_input_char: int = 64
    max_seconds: float = 5.0


class RenderBudget:
    """What is left to one rendering. Every method raises `RenderLimitError` when it is used up."""

    def __init__(
        self,
        limits: RenderLimits,
        num_input_chars: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps = limits.max_steps
        self._chars = limits.max_chars + limits.chars_per_input_char * num_input_chars
        self._clock = clock
        self._deadline = clock() + limits.max_seconds

    def take_steps(self, count: int = 1) -> None:
        before = self._steps
        self._steps -= count
        if self._steps < 0:
            raise RenderLimitError("too many steps")
        if before // _STEPS_PER_CLOCK_READ != self._steps // _STEPS_PER_CLOCK_READ:
            self._check_clock()

    def take_chars(self, count: int) -> None:
        self._chars -= count
        if self._chars < 0:
            raise RenderLimitError("too much text")

    def take(self, value: object) -> None:
        """Pay for a value as far as its own length goes."""
        if isinstance(value, str):
            self.take_chars(len(value))
        elif isinstance(value, int):
            _check_int(value.bit_length())
        elif isinstance(value, list | tuple | dict):
            self.take_steps(len(value) // _ITEMS_PER_STEP)

    def take_tree(self, value: object, *, printed: bool = False) -> None:
        """Pay for a value with all that it holds, as often as it holds it: a list of the same list
        twice, thirty deep, is small in memory and endless in print. `printed`: objects that have
        no text of their own (functions, loop state) raise `SecurityError`."""
        waiting = [value]
        while waiting:
            self.take_steps()
            item = waiting.pop()
            if isinstance(item, str | int):
                self.take(item)
            elif isinstance(item, Mapping):
                waiting += item.keys()
                waiting += item.values()
            elif isinstance(item, list | tuple):
                waiting += item
            elif isinstance(item, Namespace):
                waiting.append(_attributes(item))
            elif printed and not isinstance(item, float | Undefined | None):
                raise SecurityError("no text")

    def take_repeat(self, left: object, right: object) -> None:
        """Pay for `left * right` before it is made."""
        for value, count in ((left, right), (right, left)):
            if isinstance(value, str | list | tuple) and isinstance(count, int):
                self.take_chars(len(value) * max(count, 0))
                if not isinstance(value, str):
                    self.take_tree([value])
        if isinstance(left, int) and isinstance(right, int):
            _check_int(left.bit_length() + right.bit_length())

    def take_power(self, base: object, exponent: object) -> None:
        """Check `base ** exponent` before it is made."""
        if isinstance(base, int) and isinstance(exponent, int):
            _check_int(base.bit_length() * max(exponent, 0))

    def take_format(self, pattern: str, values: Iterable[object]) -> None:
        """Pay for `pattern % values` or `pattern.format(*values)`; widths of four digits and more,
        or given by a value, are refused."""
        if _WIDE_FORMAT.search(pattern):
            raise RenderLimitError("too wide a format")
        self.take_chars(len(pattern))
        num_uses = max(1, pattern.count("{"), pattern.count("%("))
        for value in values:
            for _ in range(num_uses):
                self.take_tree(value, printed=True)

    def take_replace(self, text: str, old: str, new: str) -> None:
        """Pay for `text.replace(old, new)` before it is made."""
        self.take_chars(len(text) + text.count(old) * len(new))

    def take_join(self, separator: str, items: list[object]) -> None:
        """Pay for `separator.join(items)` before it is made."""
        self.take_tree(items, printed=True)
        self.take_chars(len(separator) * len(items))

    def _check_clock(self) -> None:
        if self._clock() > self._deadline:
            raise RenderLimitError("too much time")


def _check_int(num_bits: int) -> None:
    if num_bits > _MAX_INT_BITS:
        raise RenderLimitError("too large a number")


def _attributes(namespace: Namespace) -> dict[str, object]:
    """What a template keeps in a `namespace`; Jinja has no public way to ask."""
    values: dict[str, object] = namespace._Namespace__attrs
    return values
