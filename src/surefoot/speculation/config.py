"""What prompt lookup may do: one frozen record, checked when it is made.

Owns the limits of every field. It must not know where a value came from (flag, file, calibration).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from surefoot.config import require_range
from surefoot.errors import ConfigError

#: Tokens of a proposal that must come true, without being verified, before a paused row proposes
#: again. One token comes true by chance all the time; two were enough evidence in the project
#: that the rules come from (lablup/mlxcel, `SHADOW_CONFIRM`).
SHADOW_CONFIRM = 2

#: Asks in a row without a proposal after which plain rounds are pipelined. A pipelined step is
#: submitted before the token it follows is known, so the first proposal after it waits one step;
#: an edit that misses for a token or two at each changed field would pay that at every field.
#: From lablup/mlxcel, where waiting for each token cost 12 % of decode time on an Apple M4 Pro.
PLAIN_ROUNDS_BEFORE_PIPELINE = 2

#: Longest suffix that may be looked up, and widest proposal: the limits of the design
#: (`docs/design.md`, speculation rules). Longer ones only cost memory and verify width.
NGRAM_LIMIT = 16
MAX_DRAFT_LIMIT = 64


class DraftPolicy(StrEnum):
    """How a row's budget is spent: `DraftGovernor` has the rules of the first two,
    `goodput.GoodputDrafter` is the third."""

    GRADED = "graded"
    GATED = "gated"
    GOODPUT = "goodput"

    @classmethod
    def default_for(cls, backend_name: str) -> DraftPolicy:
        """GATED for CUDA, where a full-width verify forward costs three to four plain steps
        (the GB10 cost tables), GRADED otherwise. `backend_name` is any name that says so, such
        as `cuda` or `CUDAExecutionProvider`."""
        return cls.GATED if "cuda" in backend_name.lower() else cls.GRADED


@dataclass(frozen=True, slots=True)
class PromptLookupConfig:
    """Lookup lengths, proposal width and policy.

    Suffixes of `ngram_max` down to `ngram_min` tokens are looked up, and up to `max_draft` tokens
    that followed are proposed (GOODPUT looks single tokens up too). `adaptive` False proposes
    `max_draft` whenever there is a match.

    The rest is the break-even rule, for servers; each default changes nothing:

    - `min_tokens_per_round`: recent tokens per drafted round below which a row pauses, in plain
      steps; the same for every width.
    - `round_costs`: the same by width instead: `round_costs[w]` is what a round of `w` fed tokens
      costs, in plain steps, lost overlap included. At most one of the two is set.
    - `resume_confirm_tokens`: length of a shadow probe. `resume_repeat_tokens`: length of the
      probes after the first confirmed one, None for the same. `resume_confirmations`: probes in a
      row that must come true. `min_paused_span`: asks that a pause lasts before it probes.
    - `overlapping_probes`: a probe longer than what followed its match goes on with the same
      tokens from their start, as a text of that period would. Otherwise text that repeats itself
      every three tokens never offers a probe of four, and a paused row never comes back.
    - `start_paused`: a row begins paused and earns its first proposal by a probe.
    - `plain_rounds_before_pipeline`: proposal-free asks after which plain rounds are pipelined.

    Raises `ConfigError` naming field, value and limit.
    """

    ngram_max: int = 3
    ngram_min: int = 2
    max_draft: int = 7
    adaptive: bool = True
    policy: DraftPolicy = DraftPolicy.GRADED
    min_tokens_per_round: float | None = None
    round_costs: tuple[float, ...] | None = None
    resume_confirm_tokens: int = SHADOW_CONFIRM
    resume_repeat_tokens: int | None = None
    resume_confirmations: int = 1
    min_paused_span: int = 0
    overlapping_probes: bool = False
    start_paused: bool = False
    plain_rounds_before_pipeline: int = PLAIN_ROUNDS_BEFORE_PIPELINE

    def __post_init__(self) -> None:
        _require_int("ngram_max", self.ngram_max, 1, NGRAM_LIMIT)
        _require_int("ngram_min", self.ngram_min, 1, self.ngram_max)
        _require_int("max_draft", self.max_draft, 1, MAX_DRAFT_LIMIT)
        if not isinstance(self.policy, DraftPolicy):
            raise ConfigError(
                f"policy is {self.policy!r}; it must be a DraftPolicy: "
                f"{', '.join(repr(str(policy)) for policy in DraftPolicy)}",
                param="policy",
            )
        _require_int("resume_confirm_tokens", self.resume_confirm_tokens, 1, MAX_DRAFT_LIMIT)
        if self.resume_repeat_tokens is not None:
            _require_int("resume_repeat_tokens", self.resume_repeat_tokens, 1, MAX_DRAFT_LIMIT)
        _require_int("resume_confirmations", self.resume_confirmations, 1, 64)
        _require_int("min_paused_span", self.min_paused_span, 0, 65536)
        _require_int("plain_rounds_before_pipeline", self.plain_rounds_before_pipeline, 0, 64)
        self._check_break_even()

    @property
    def prices_rounds(self) -> bool:
        """Whether rows need a `goodput.GoodputDrafter`."""
        return self.adaptive and self.policy is DraftPolicy.GOODPUT

    def _check_break_even(self) -> None:
        threshold = self.min_tokens_per_round
        if threshold is not None and not (
            math.isfinite(threshold) and 1 < threshold <= self.max_draft + 1
        ):
            raise ConfigError(
                f"min_tokens_per_round is {threshold}; it must be more than 1 and at most "
                f"max_draft + 1 = {self.max_draft + 1}",
                param="min_tokens_per_round",
            )
        if self.round_costs is None:
            return
        if threshold is not None:
            raise ConfigError(
                f"round_costs is set beside min_tokens_per_round = {threshold}; set at most one",
                param="round_costs",
            )
        check_round_costs(self.round_costs, self.max_draft)


def check_round_costs(round_costs: tuple[float, ...], max_draft: int) -> None:
    """Raise `ConfigError` unless there is a finite cost of at least 0 for each width from 0 to
    `max_draft + 1`."""
    if len(round_costs) < max_draft + 2:
        raise ConfigError(
            f"round_costs has {len(round_costs)} entries; it must have at least "
            f"max_draft + 2 = {max_draft + 2}, one for each width from 0",
            param="round_costs",
        )
    for width, cost in enumerate(round_costs):
        if not (math.isfinite(cost) and cost >= 0):
            raise ConfigError(
                f"round_costs[{width}] is {cost}; it must be finite and at least 0",
                param="round_costs",
            )


def _require_int(field: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(
            f"{field} is {value!r}; it must be a whole number between {low} and {high}",
            param=field,
        )
    require_range(field, value, low, high)
