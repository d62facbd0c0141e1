"""A proposal that is not verified but watched: evidence at no model cost.

Owns the comparison alone; who starts a probe and what a result means is the drafter's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShadowProbe:
    """`proposal[i]` claims the token at `context[start + i]`; `start` is the context's length
    when it was looked up."""

    start: int
    proposal: tuple[int, ...]

    def settle(self, context: Sequence[int]) -> bool | None:
        """True once every claim came true, False at the first that did not, None until then."""
        seen = context[self.start : self.start + len(self.proposal)]
        for claimed, emitted in zip(self.proposal, seen, strict=False):
            if claimed != emitted:
                return False
        return True if len(seen) == len(self.proposal) else None
