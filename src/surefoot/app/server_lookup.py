"""Prompt lookup as `surefoot serve` runs it: flags in, the scheduler's part and its summary out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from surefoot.app.calibration import ASSUMED
from surefoot.app.console import say
from surefoot.app.cost_tables import CostTables, measuring, store_tables, stored_tables
from surefoot.app.live_tables import LiveTables
from surefoot.errors import ConfigError
from surefoot.speculation.config import DraftPolicy, PromptLookupConfig
from surefoot.speculation.goodput.match import SHORTEST
from surefoot.speculation.governed.server_defaults import RULED_POLICY, server_lookup_config

if TYPE_CHECKING:
    from surefoot.engine.engine import Engine
    from surefoot.loading.model import LoadedModel
    from surefoot.loading.store.models import ModelStore
    from surefoot.scheduling.proposing import PromptLookup
    from surefoot.speculation.live_costs import LiveStep


#: The policy of a server whose flags name none. By replay over 192 varied replies and five
#: machines' tables it is ahead of the break-even rule nearly everywhere, live on copies and on chat
#: (`docs/adr/0006-goodput.md`).
SERVER_POLICY = DraftPolicy.GOODPUT


class DraftKind(StrEnum):
    PROMPT_LOOKUP = "prompt-lookup"
    NONE = "none"


class ThresholdKind(StrEnum):
    """`AUTO`: priced on this machine, by the policy itself or by width from the cost table. `OFF`:
    no break-even rule. `GIVEN`: one number for every width."""

    AUTO = "auto"
    OFF = "off"
    GIVEN = "given"


@dataclass(frozen=True, slots=True)
class LookupOptions:
    """What the flags ask for. `threshold` is set for `GIVEN`. Build it with `lookup_options`."""

    config: PromptLookupConfig
    kind: ThresholdKind
    threshold: float | None
    max_batch: int


def server_policy(min_tokens_per_round: str) -> DraftPolicy | None:
    """The policy where the flags name none: a threshold that is given needs one that it can rule,
    and unpriced drafts are rationed by the backend's own (None)."""
    if min_tokens_per_round == ThresholdKind.AUTO:
        return SERVER_POLICY
    return None if min_tokens_per_round == ThresholdKind.OFF else RULED_POLICY


def lookup_options(
    base: PromptLookupConfig, min_tokens_per_round: str, max_batch: int
) -> LookupOptions:
    """Raises `ConfigError` naming the flag, the value and the limit."""
    if not 1 <= max_batch <= 64:
        raise ConfigError(
            f"--prompt-lookup-max-batch is {max_batch}; it must be between 1 and 64",
            param="prompt_lookup_max_batch",
        )
    if base.prices_rounds:
        return _goodput_options(base, min_tokens_per_round, max_batch)
    if min_tokens_per_round == ThresholdKind.OFF:
        return LookupOptions(base, ThresholdKind.OFF, None, max_batch)
    if min_tokens_per_round == ThresholdKind.AUTO:
        config = server_lookup_config(base, None) if base.adaptive else base
        return LookupOptions(config, ThresholdKind.AUTO, None, max_batch)
    try:
        threshold = float(min_tokens_per_round)
    except ValueError:
        threshold = math.nan
    if not (math.isfinite(threshold) and 1 < threshold <= base.max_draft + 1):
        raise ConfigError(
            f"--min-tokens-per-round is {min_tokens_per_round}; it must be auto, off or a number "
            f"more than 1 and at most draft-max + 1 = {base.max_draft + 1}",
            param="min_tokens_per_round",
        )
    config = server_lookup_config(base, threshold)
    return LookupOptions(config, ThresholdKind.GIVEN, threshold, max_batch)


def _goodput_options(
    base: PromptLookupConfig, min_tokens_per_round: str, max_batch: int
) -> LookupOptions:
    """GOODPUT has no break-even rule to set. Raises `ConfigError` for a number."""
    if min_tokens_per_round not in (ThresholdKind.AUTO, ThresholdKind.OFF):
        raise ConfigError(
            f"--min-tokens-per-round is {min_tokens_per_round}; the goodput policy prices every "
            "round itself: leave the flag at auto",
            param="min_tokens_per_round",
        )
    return LookupOptions(base, ThresholdKind(min_tokens_per_round), None, max_batch)


class ServerLookup:
    """Makes the scheduler's part once the engine is there, and tells what was resolved. Without a
    stored cost table it starts on an assumed one and offers the measuring as idle work."""

    num_spare_windows = 1

    def __init__(self, options: LookupOptions) -> None:
        self._options = options
        assumed = CostTables(ASSUMED, ASSUMED, "assumed until measured here")
        self._books = assumed.price_books(options.config.max_draft)
        self._take(assumed)
        self._part: PromptLookup | None = None
        self.idle_work: Iterator[None] | None = None

    def make(self, store: ModelStore, engine: Engine, model: LoadedModel) -> PromptLookup:
        """For `cli.assembly`. Runs every width that a round may have once."""
        from surefoot.app.calibration import GREEDY, SAMPLED
        from surefoot.app.warm_up import warm_up_widths

        max_draft = self._options.config.max_draft
        stored = stored_tables(store.costs, engine, model, max_draft)
        if stored is None:
            self.idle_work = self._measure(store, engine, model)
        else:
            self._take(stored)
        warm_up_widths(engine, max_draft, [GREEDY, SAMPLED])
        return self.resolve(self._tables)

    def _measure(self, store: ModelStore, engine: Engine, model: LoadedModel) -> Iterator[None]:
        """Measure and take the tables over, for rows that run and for the next start."""
        max_draft, window = self._options.config.max_draft, engine.num_windows
        tables = yield from measuring(engine, model, max_draft, window=window)
        self._take(tables)
        if tables.quiet:
            store_tables(tables, store.costs, engine, model)
        else:
            say("the machine was busy while step costs were measured: they are not stored")
        for line in self.describe_costs():
            say(line)

    def resolve(self, tables: CostTables) -> PromptLookup:
        """The scheduler's part, priced by these tables and by what replaces them."""
        from surefoot.scheduling.proposing import PromptLookup

        options = self._options
        ruled = options.kind is ThresholdKind.AUTO and options.config.adaptive
        self._take(tables)
        self._part = PromptLookup.from_config(
            options.config,
            max_batch=options.max_batch,
            round_costs=self._price if ruled or options.config.prices_rounds else None,
            step_prices=self._books.at if options.config.prices_rounds else None,
            on_step=self._refine if options.config.prices_rounds else None,
        )
        return self._part

    def _take(self, tables: CostTables) -> None:
        """Price by these from now on, and by what steps say beside them."""
        self._live = LiveTables(tables)
        self._use(tables)

    def _use(self, tables: CostTables) -> None:
        self._books.use(tables.greedy, tables.sampled)
        self._tables = tables

    def _refine(self, step: LiveStep, sampled: bool) -> None:
        refined = self._live.observe(step, sampled)
        if refined is not None:
            self._use(refined)

    def _price(self, context: int, synchronous_ticks: float, sampled: bool) -> tuple[float, ...]:
        max_draft = self._options.config.max_draft
        return self._tables.round_costs(max_draft)(context, synchronous_ticks, sampled)

    def summary(self) -> list[str]:
        """Policy, costs and thresholds, and where each came from."""
        config, options = self._options.config, self._options
        return [
            f"prompt lookup: {config.policy if config.adaptive else 'not adaptive'}, drafts of up "
            f"to {config.max_draft}, n-grams of {_shortest(config)} to {config.ngram_max}, while "
            f"at most {options.max_batch} rows decode",
            f"break-even rule: {_describe_rule(options)}",
            *self.describe_costs(),
        ]

    def describe_costs(self) -> list[str]:
        """The cost table in plain steps, and what it asks of a round."""
        lines = [f"step costs: {self._tables.origin}"]
        for bucket in self._tables.greedy.buckets:
            costs = ", ".join(f"{w}: {bucket.relative(w):.2f}" for w in sorted(bucket.verify_s))
            lines.append(f"  at {bucket.context} tokens, in plain steps by width: {costs}")
            lost = max(bucket.relative_synchronous - 1, 0)
            least = self._threshold(bucket.context or 0)
            lines.append(
                f"  lost overlap {lost:.2f} a synchronous step"
                + ("" if least is None else f"; a full round must emit {least:.4g} tokens")
            )
        return lines

    def properties(self) -> dict[str, object]:
        """For `/props`: the configuration, and what a round costs by width and context."""
        assert self._part is not None, "made before it is described"
        config, tables = self._options.config, self._tables
        prices = tables.round_costs(config.max_draft)
        ticks = self._part.synchronous_ticks_per_round
        return {
            "policy": str(config.policy),
            "draft_max": config.max_draft,
            "ngram_min": _shortest(config),
            "ngram_max": config.ngram_max,
            "adaptive": config.adaptive,
            "max_batch": self._options.max_batch,
            "min_tokens_per_round": self._options.threshold or str(self._options.kind),
            "costs": tables.origin,
            "round_costs": {
                str(bucket.context): [
                    round(c, 3) for c in prices(bucket.context or 0, ticks, False)
                ]
                for bucket in tables.greedy.buckets
            },
        }

    def _threshold(self, context: int) -> float | None:
        """Tokens that a round of the widest draft must emit there; None: nothing asks for any."""
        options = self._options
        if options.kind is ThresholdKind.GIVEN:
            return options.threshold
        ruled = options.kind is ThresholdKind.AUTO or options.config.prices_rounds
        if not ruled or not options.config.adaptive:
            return None
        width = options.config.max_draft + 1
        config = options.config
        ticks = 1 if config.prices_rounds else config.plain_rounds_before_pipeline
        costs = self._tables.round_costs(config.max_draft)(context, ticks, False)
        return round(costs[width], 2)


def _shortest(config: PromptLookupConfig) -> int:
    """Tokens of the shortest run that is looked up."""
    return SHORTEST if config.prices_rounds else config.ngram_min


def _describe_rule(options: LookupOptions) -> str:
    if not options.config.adaptive:
        return "off: drafts are not adaptive"
    if options.config.prices_rounds:
        return "not used: goodput prices each round before it runs, and each row keeps a ledger"
    if options.kind is ThresholdKind.OFF:
        return "off (--min-tokens-per-round off)"
    config = options.config
    resume = (
        f"resume after a probe of {config.resume_confirm_tokens} tokens, pipeline again after "
        f"{config.plain_rounds_before_pipeline} plain rounds"
    )
    if options.kind is ThresholdKind.GIVEN:
        return f"{options.threshold:g} tokens a round (given); {resume}"
    return f"a round must emit what its width costs here; {resume}"
