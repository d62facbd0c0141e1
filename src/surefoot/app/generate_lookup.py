"""Prompt lookup as `surefoot generate` runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surefoot.speculation.config import DraftPolicy, PromptLookupConfig

if TYPE_CHECKING:
    from surefoot.core.request import SamplingParams
    from surefoot.engine.engine import Engine
    from surefoot.loading.model import LoadedModel
    from surefoot.loading.store.models import ModelStore
    from surefoot.scheduling.proposing import PromptLookup, StepPricesAt
    from surefoot.speculation.goodput.drafter import GoodputDrafter
    from surefoot.speculation.governed.drafter import PromptLookupDrafter

BACKEND = "CPUExecutionProvider"
"""What the engine computes on."""


DEFAULT_DRAFT_MAX = 7


GOODPUT_DRAFT_MAX = 15
"""GOODPUT chooses the width by its price. Live, on replies that copy a paragraph after 1,024 to
4,096 tokens: +153 % with 15 against +118 % with 7 (three rounds); on short copies the same."""


def lookup_config(
    policy: DraftPolicy | None,
    draft_max: int | None,
    ngram_min: int,
    ngram_max: int,
    adaptive: bool = True,
) -> PromptLookupConfig:
    """`policy` None: the backend's; `draft_max` None: the policy's. Raises `ConfigError` naming the
    field, the value and the limit."""
    policy = policy or DraftPolicy.default_for(BACKEND)
    if draft_max is None:
        priced = adaptive and policy is DraftPolicy.GOODPUT
        draft_max = GOODPUT_DRAFT_MAX if priced else DEFAULT_DRAFT_MAX
    return PromptLookupConfig(
        ngram_max=ngram_max,
        ngram_min=ngram_min,
        max_draft=draft_max,
        adaptive=adaptive,
        policy=policy,
    )


class WatchedLookup:
    """Prompt lookup for one row whose counts are wanted afterwards. `params` is how its tokens
    will be drawn."""

    num_spare_windows = 0
    idle_work = None

    def __init__(self, config: PromptLookupConfig, params: SamplingParams) -> None:
        self._config = config
        self._params = params
        self._drafter: PromptLookupDrafter | GoodputDrafter | None = None

    def make(self, store: ModelStore, engine: Engine, model: LoadedModel) -> PromptLookup:
        """For `cli.assembly`. Runs every width that a round may have once."""
        from surefoot.app.warm_up import warm_up_widths
        from surefoot.scheduling.proposing import PromptLookup

        warm_up_widths(engine, self._config.max_draft, [self._params])
        start, prices = self._config.plain_rounds_before_pipeline, None
        if self._config.prices_rounds:
            prices = _stored_or_assumed(store, engine, model, self._config.max_draft)
        return PromptLookup(self._new_drafter, step_prices=prices, synchronous_start=start)

    def summary_line(self, num_tokens: int) -> str:
        """The last row's counts for a reply of `num_tokens`."""
        from surefoot.speculation.governed.drafter import PromptLookupStats

        stats = self._drafter.stats if self._drafter else PromptLookupStats()
        return stats.summary_line(num_tokens)

    def _new_drafter(self, end_ids: frozenset[int]) -> PromptLookupDrafter | GoodputDrafter:
        from surefoot.speculation.goodput.drafter import GoodputDrafter
        from surefoot.speculation.governed.drafter import PromptLookupDrafter

        if self._config.prices_rounds:
            self._drafter = GoodputDrafter(self._config, end_ids)
        else:
            self._drafter = PromptLookupDrafter(self._config, end_ids)
        return self._drafter


def _stored_or_assumed(
    store: ModelStore, engine: Engine, model: LoadedModel, max_draft: int
) -> StepPricesAt:
    """The prices of `surefoot calibrate` or of a server here, else assumed ones: one reply is too
    short to measure for."""
    from surefoot.app.calibration import ASSUMED
    from surefoot.app.cost_tables import CostTables, stored_tables

    stored = stored_tables(store.costs, engine, model, max_draft)
    return (stored or CostTables(ASSUMED, ASSUMED, "assumed")).price_books(max_draft).at
