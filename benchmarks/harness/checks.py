"""What a run had to show: each thing with what was found, and whether that is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.tables import markdown_table


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that had to be so."""

    what: str
    found: str
    right: bool


def none_of(what: str, count: float) -> Check:
    return Check(what, f"{count:.0f}", not count)


def check_table(checks: Sequence[Check]) -> str:
    """The verdict, and a line for each check."""
    verdict = "Everything held." if all(c.right for c in checks) else "**Something did not hold.**"
    rows = [[c.what, c.found, "yes" if c.right else "**no**"] for c in checks]
    return verdict + "\n\n" + markdown_table(["check", "found", "right"], rows)
