"""Decides, round by round, how many tokens a row may propose.

Owns the row's evidence: how its drafted rounds fared, its pauses, and the break-even rule. It
must not know tokens or lookups; it is told counts.
"""

from __future__ import annotations

import math

from surefoot.speculation.config import DraftPolicy, PromptLookupConfig

#: Weight of the newest drafted round in `accepted_ema` and in the break-even averages. Half: two
#: rounds tell a copy from prose (lablup/mlxcel).
EMA_WEIGHT = 0.5

#: GRADED's block is `GRADED_SLOPE * ema + GRADED_MARGIN`: a run of one-token landings verifies
#: five-wide rounds instead of eight. Landings are all or nothing more often than not, so the
#: margin leaves room above the average (lablup/mlxcel).
GRADED_SLOPE = 2.0
GRADED_MARGIN = 2

#: Drafted rounds in a row that land nothing before a pause (lablup/mlxcel).
MISSES_BEFORE_PAUSE = 3

#: GRADED's pauses in asks: the first, and the longest after doublings (lablup/mlxcel).
FIRST_PAUSE = 4
LONGEST_PAUSE = 32

#: GATED's narrow block: on an NVIDIA GB10 a width-3 verify forward costs 1.6 to 1.8 plain steps,
#: a width-8 one 3 to 4 (`tests/data/costs`), so a first block that misses stays cheap.
GATED_NARROW_DRAFT = 2

#: GATED's EMA at the start and after a resume, and the EMA that earns the full block: one narrow
#: round landing whole lifts 1.0 to 1.5 (lablup/mlxcel).
GATED_START_EMA = 1.0
GATED_FULL_AT = 1.5

#: Drafted rounds that must back the break-even averages before they may pause a row: one round
#: alone says nothing (`docs/design.md`, break-even rule).
BREAK_EVEN_ROUNDS = 2


class BreakEven:
    """Recent tokens per drafted round against what such rounds cost, in plain steps.

    Both are averaged over the same rounds since the start or the last resume: the first round
    sets them, later ones enter with weight 0.5. `threshold` is one cost for every width;
    `round_costs[w]` (a width beyond it costs what its widest does) is used without it. With
    neither the rule is off.
    """

    def __init__(self, threshold: float | None, round_costs: tuple[float, ...] | None) -> None:
        self.threshold = threshold
        self.round_costs = round_costs
        self.clear()

    def clear(self) -> None:
        """Forget every round."""
        self.num_rounds = 0
        self.emitted_ema = 0.0
        self.cost_ema = 0.0

    def record(self, emitted: int, width: int) -> None:
        """One drafted round fed `width` tokens and emitted `emitted`."""
        cost = self._round_cost(width)
        if cost is None:
            return
        weight = EMA_WEIGHT if self.num_rounds else 1.0
        self.emitted_ema += weight * (emitted - self.emitted_ema)
        self.cost_ema += weight * (cost - self.cost_ema)
        self.num_rounds += 1

    @property
    def loses(self) -> bool:
        """Enough rounds say that drafting costs more than it emits."""
        return self.num_rounds >= BREAK_EVEN_ROUNDS and self.emitted_ema < self.cost_ema

    def _round_cost(self, width: int) -> float | None:
        if self.threshold is not None:
            return self.threshold
        if not self.round_costs:
            return None
        return self.round_costs[min(width, len(self.round_costs) - 1)]


class DraftGovernor:
    """One row's budget of proposals.

    GRADED: the block follows `accepted_ema`, which starts at `max_draft`; three misses in a row
    (rounds that land nothing) pause it for 4 asks, each further such pause for twice as many, up
    to 32; a round that lands anything resets misses and pause length.

    GATED: the block is narrow (2) until `accepted_ema`, which starts at 1.0, reaches 1.5, then
    `max_draft`. It starts on probation, where one miss pauses; a round that lands a whole narrow
    block ends probation, and then it takes three misses in a row. A pause has no length: it ends
    when shadow probes come true (`shadow_confirmed`), and probation starts again.

    Either: a row whose recent rounds emit less than they cost is paused in GATED's way
    (`BreakEven`), checked after the miss rule. `adaptive` False: always `max_draft`, nothing is
    recorded.
    """

    def __init__(self, config: PromptLookupConfig) -> None:
        graded = config.policy is DraftPolicy.GRADED
        self._config = config
        self._narrow = min(GATED_NARROW_DRAFT, config.max_draft)
        self.accepted_ema = float(config.max_draft) if graded else GATED_START_EMA
        self.misses = 0
        self.pause_left = 0
        self.next_pause = FIRST_PAUSE
        self.drafting = not (config.start_paused and config.adaptive)
        self.probation = True
        self.break_even = BreakEven(config.min_tokens_per_round, config.round_costs)
        self.num_pauses = 0
        self._confirmations = 0
        self._paused_asks = 0

    def budget(self) -> int:
        """How many tokens this round may propose; 0: none, a plain step. Each call while a
        GRADED pause runs counts one down."""
        config = self._config
        if not config.adaptive:
            return config.max_draft
        if not self.drafting:
            self._paused_asks += 1
        if self.pause_left > 0:
            self.pause_left -= 1
            return 0
        if not self.drafting:
            return 0
        if config.policy is DraftPolicy.GRADED:
            block = math.floor(GRADED_SLOPE * self.accepted_ema + 0.5) + GRADED_MARGIN
            return min(block, config.max_draft)
        return config.max_draft if self.accepted_ema >= GATED_FULL_AT else self._narrow

    def record(self, accepted: int, proposed: int | None = None) -> None:
        """A drafted round proposed `proposed` tokens (None: the full block) and kept `accepted`
        of them. Called once per drafted round; the width matters to the break-even rule alone."""
        config = self._config
        if not config.adaptive:
            return
        self.accepted_ema += EMA_WEIGHT * (accepted - self.accepted_ema)
        if config.policy is DraftPolicy.GRADED:
            paused = self._graded_misses(accepted)
        else:
            paused = self._gated_misses(accepted)
        width = (config.max_draft if proposed is None else proposed) + 1
        self.break_even.record(accepted + 1, width)
        if self.break_even.loses:
            self._pause_until_confirmed()
            paused = True
        self.num_pauses += paused

    @property
    def probes_while_paused(self) -> bool:
        """Paused until shadow probes come true."""
        return not self.drafting

    @property
    def may_probe(self) -> bool:
        """Paused so, and for longer than the minimum span: a probe may start now."""
        return not self.drafting and self._paused_asks > self._config.min_paused_span

    @property
    def confirm_tokens(self) -> int:
        """Tokens that the next probe has to see come true."""
        config = self._config
        if self._confirmations and config.resume_repeat_tokens is not None:
            return config.resume_repeat_tokens
        return config.resume_confirm_tokens

    def shadow_confirmed(self) -> None:
        """A probe came true. With enough of them in a row drafting resumes: EMA 1.0, no misses,
        on probation, break-even averages cleared."""
        if self.drafting:
            return
        self._confirmations += 1
        if self._confirmations < self._config.resume_confirmations:
            return
        self.drafting = True
        self.probation = True
        self.misses = 0
        self.accepted_ema = GATED_START_EMA
        self.break_even.clear()

    def shadow_refuted(self) -> None:
        """A probe did not come true: confirmations count from zero again."""
        self._confirmations = 0

    def _graded_misses(self, accepted: int) -> bool:
        if accepted > 0:
            self.misses = 0
            self.next_pause = FIRST_PAUSE
            return False
        self.misses += 1
        if self.misses < MISSES_BEFORE_PAUSE:
            return False
        self.misses = 0
        self.pause_left = self.next_pause
        self.next_pause = min(2 * self.next_pause, LONGEST_PAUSE)
        return True

    def _gated_misses(self, accepted: int) -> bool:
        # A stray token is what prose lands too, so only a whole narrow block ends probation.
        if accepted >= self._narrow:
            self.probation = False
        if accepted > 0:
            self.misses = 0
            return False
        self.misses += 1
        if not self.probation and self.misses < MISSES_BEFORE_PAUSE:
            return False
        self.misses = 0
        self._pause_until_confirmed()
        return True

    def _pause_until_confirmed(self) -> None:
        self.drafting = False
        self._confirmations = 0
        self._paused_asks = 0
