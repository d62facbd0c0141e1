"""Prompts and replies on which prompt lookup fares as a test wants, and a drafter that keeps a
diary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from surefoot.speculation.config import PromptLookupConfig
from surefoot.speculation.goodput.chances import ServerPrior
from surefoot.speculation.goodput.drafter import GoodputDrafter
from surefoot.speculation.governed.drafter import PromptLookupDrafter

FIRST = 1000
"""Reply tokens count up from here; each stands in the reply once."""

WRONG = 500
"""Tokens that a prompt promises and no reply holds."""


def landing_text(landings: Iterable[int], width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A prompt and a reply whose i-th verify round proposes `width` tokens (fewer if the policy
    allows fewer) and lands `landings[i]` of them.

    The reply is 1000, 1001, ... For each round the prompt holds a fragment: the two tokens before
    it, the tokens that land, then wrong ones. With landings (1, 0) and width 2 the prompt holds
    `1000 1001 1002 500` and `1002 1003 500 500`.
    """
    prompt: list[int] = []
    position = 2
    for hits in landings:
        start = FIRST + position - 2
        prompt += [*range(start, start + 2 + hits), *[WRONG] * (width - hits)]
        position += hits + 1
    return tuple(prompt), tuple(range(FIRST, FIRST + position))


class Diary:
    """Mixed into a drafter: `diary` has a letter per call: `d` asked and proposed, `n` asked and
    did not, `r` retracted, `v` verified, `o` observed; `verified` has a round's proposed and
    accepted tokens."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.diary = ""
        self.verified: list[tuple[int, int]] = []

    def draft_block(self, budget: int) -> list[int]:
        draft: list[int] = super().draft_block(budget)
        self.diary += "d" if draft else "n"
        return draft

    def retract_draft(self, draft: Sequence[int]) -> None:
        super().retract_draft(draft)
        self.diary += "r"

    def accept_verified_tokens(
        self, draft: Sequence[int], accepted: int, emitted: Sequence[int]
    ) -> None:
        super().accept_verified_tokens(draft, accepted, emitted)
        self.diary += "v"
        self.verified.append((len(draft), accepted))

    def observe_emitted(self, tokens: Sequence[int]) -> None:
        super().observe_emitted(tokens)
        self.diary += "o"


class DiaryDrafter(Diary, PromptLookupDrafter):
    """The governors' drafter."""


class GoodputDiary(Diary, GoodputDrafter):
    """GOODPUT's."""


class Diaries:
    """A drafter factory that keeps every drafter it made."""

    def __init__(self, config: PromptLookupConfig) -> None:
        self.config = config
        self.prior = ServerPrior()
        self.drafters: list[DiaryDrafter | GoodputDiary] = []

    def __call__(self, end_ids: frozenset[int]) -> DiaryDrafter | GoodputDiary:
        if self.config.prices_rounds:
            self.drafters.append(GoodputDiary(self.config, end_ids, self.prior))
        else:
            self.drafters.append(DiaryDrafter(self.config, end_ids))
        return self.drafters[-1]
