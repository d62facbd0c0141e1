"""One request on its way through the scheduler: its tokens and how many of them the KV holds.

There are no phases. A row feeds `tokens[num_computed:]`: a prompt chunk, the next token and a
re-read after preemption are the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from surefoot.core.request import Request
from surefoot.core.step import RowSampling
from surefoot.core.timings import Timings
from surefoot.scheduling.drafting import Drafter


@dataclass(slots=True)
class DraftCounts:
    """What verify rounds did for one reply, counting only drafts that could be kept: a stop or a
    limit inside a round cuts both numbers there."""

    rounds: int = 0
    proposed: int = 0
    accepted: int = 0

    def add(self, proposed: int, accepted: int) -> None:
        assert 0 <= accepted <= proposed, (accepted, proposed)
        self.rounds += 1
        self.proposed += proposed
        self.accepted += accepted


@dataclass(slots=True)
class RowClock:
    """Seconds by the scheduler's clock: arrival, first admission, first token, last token."""

    queued: float = 0.0
    admitted: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    def token_at(self, now: float) -> None:
        if self.first_token is None:
            self.first_token = now
        self.last_token = now


@dataclass(slots=True, eq=False)
class Row:
    """`tokens` is the prompt and every emitted token; the KV window holds the first
    `num_computed` of them. `window` is None while the row waits. `asked`: its drafter was asked
    and neither a forward nor a retraction followed yet. `num_told`: tokens its drafter knows.
    `num_cached`: prompt tokens that were found known and that it never computed. `num_reached`: how
    far it had come when it was set aside last."""

    request: Request
    tokens: list[int] = field(init=False)
    num_computed: int = 0
    window: int | None = None
    cancelled: bool = False
    drafter: Drafter | None = None
    asked: bool = False
    num_told: int = 0
    num_cached: int = 0
    num_reached: int = 0
    drafts: DraftCounts = field(default_factory=DraftCounts)
    clock: RowClock = field(default_factory=RowClock)

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt_ids)

    @property
    def row_id(self) -> int:
        return self.request.request_id

    @property
    def priority(self) -> int:
        return self.request.priority

    @property
    def num_prompt(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def num_emitted(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def num_pending(self) -> int:
        """Tokens known and not yet fed."""
        return len(self.tokens) - self.num_computed

    @property
    def decoding(self) -> bool:
        """All that is left to feed is the token sampled last."""
        return self.num_pending == 1 and self.num_emitted > 0

    def skip_to(self, length: int) -> None:
        """The KV holds `length` tokens now, those past `num_computed` by other rows' doing."""
        if not self.num_emitted:
            self.num_cached += max(0, length - max(self.num_reached, self.num_computed))
        self.num_computed = length

    def set_aside(self) -> None:
        """It begins anew when it is back, from what is known then."""
        self.num_reached = max(self.num_reached, self.num_computed)
        self.num_computed = 0
        self.drafter = None

    def room(self, capacity: int) -> int:
        """Tokens the row may still emit, by `max_tokens` and by its window: the token emitted
        last needs no KV position, so a window of `capacity` holds a sequence of `capacity + 1`."""
        return min(self.request.max_tokens - self.num_emitted, capacity + 1 - len(self.tokens))

    def sampling(self) -> RowSampling:
        """What the engine needs to draw this row's next tokens."""
        params = self.request.sampling
        if not params.has_penalties:
            return RowSampling(params)
        return RowSampling(params, self.request.prompt_ids, tuple(self.tokens[self.num_prompt :]))

    def timings(self, now: float) -> Timings:
        """A row that ends before its first token has spent its time on the prompt."""
        clock = self.clock
        start = now if clock.admitted is None else clock.admitted
        first = now if clock.first_token is None else clock.first_token
        last = first if clock.last_token is None else clock.last_token
        return Timings(
            prompt_n=self.num_prompt - self.num_cached,
            prompt_ms=1000.0 * (first - start),
            predicted_n=self.num_emitted,
            predicted_ms=1000.0 * (last - first),
            cache_n=self.num_cached,
            draft_n=self.drafts.proposed,
            draft_n_accepted=self.drafts.accepted,
            draft_rounds=self.drafts.rounds,
        )
