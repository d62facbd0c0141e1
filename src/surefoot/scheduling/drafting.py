"""What the scheduler expects of a row's drafter: `speculation.drafter.PromptLookupDrafter`, or a
scripted one in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Drafter(Protocol):
    """Proposes tokens for one row; sees integers only."""

    round_costs: tuple[float, ...] | None

    @property
    def last_ask_paused(self) -> bool:
        """The last ask was answered with nothing because a pause left no budget."""
        ...

    def start(self, prompt_tokens: Sequence[int], first_token: int) -> None:
        """The row's prefill is done and sampled `first_token`."""
        ...

    def observe_emitted(self, tokens: Sequence[int]) -> None:
        """A step without a draft emitted these."""
        ...

    def draft_block(self, budget: int) -> list[int]:
        """Up to `budget` (at least 1) proposals; none means a plain step."""
        ...

    def retract_draft(self, draft: Sequence[int]) -> None:
        """No forward followed the last ask, which answered `draft`."""
        ...

    def accept_verified_tokens(
        self, draft: Sequence[int], accepted: int, emitted: Sequence[int]
    ) -> None:
        """A verify round of `draft` kept `accepted` of it and emitted these tokens."""
        ...

    def pipelines_plain_rounds(self) -> bool:
        """No proposal is expected soon: plain steps may overlap."""
        ...
