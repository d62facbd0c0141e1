"""What goes to the terminal, and how: results on stdout, everything else on stderr."""

from __future__ import annotations

import sys

UNITS = ("B", "KB", "MB", "GB", "TB")


def say(line: str) -> None:
    """One line for the person who waits, on stderr."""
    print(line, file=sys.stderr, flush=True)


def fail(message: str) -> None:
    """The one line that a failed command ends with."""
    say(f"surefoot: error: {' '.join(message.split())}")


def human_bytes(count: float) -> str:
    """Decimal units, as file managers and disk makers count: 98362432 is "98.4 MB"."""
    for unit in UNITS:
        if count < 1000 or unit == UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("the last unit takes any count")
