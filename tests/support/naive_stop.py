"""Where a text with stop strings ends, found the plain way."""

from __future__ import annotations

from collections.abc import Sequence


def naive(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The first stop string to be complete ends the text; the longest of those that end there."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))], True
    return text, False
