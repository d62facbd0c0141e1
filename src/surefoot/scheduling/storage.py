"""Where rows keep their KV: windows, the memory they may take, and what is known beforehand.

Owns the windows' ledger and the budget, and brings the prefix cache, if there is one, into both.
Must not know steps or why a row comes and goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from surefoot.cache.block_pool import BLOCK_TOKENS
from surefoot.cache.budget import KvBudget, window_blocks
from surefoot.cache.windows import WindowLedger
from surefoot.core.step import StepEngine
from surefoot.scheduling.prefix_cache import PrefixCache
from surefoot.scheduling.row import Row

MAX_UNWOUND = 80
"""Positions past its committed ones that a row may have touched: a verify round of 65 (its limit)
and a few dummies."""


RestorePrefix = Callable[[Sequence[int], int], int]
"""`restore_prefix(tokens, window)`: how long a prefix of `tokens` is valid in `window` already; at
least one token is left to compute. For measurements over windows that were filled by hand."""


@dataclass(frozen=True, slots=True)
class KvCounts:
    """Blocks of `BLOCK_TOKENS` positions. The pool's are `free`, `held` by rows or `kept` for
    later prompts, `total` together; `reserved` is what the windows of running rows may take
    beside it."""

    total: int = 0
    free: int = 0
    held: int = 0
    kept: int = 0
    reserved: int = 0


class RowStorage:
    """`budget` None: no bound. `prefixes` None: every row computes all of its tokens, but for
    what `restore_prefix` says."""

    def __init__(
        self,
        engine: StepEngine,
        budget: KvBudget | None = None,
        prefixes: PrefixCache | None = None,
        restore_prefix: RestorePrefix | None = None,
    ) -> None:
        self._engine = engine
        self._budget = budget if budget is not None else KvBudget()
        self._prefixes = prefixes
        self._restore_prefix = restore_prefix
        self._windows = WindowLedger(engine.num_windows)
        least = window_blocks(engine.capacity)
        assert budget is None or budget.total is None or budget.total >= least, (budget, least)

    def counts(self) -> KvCounts:
        """What the memory holds now."""
        reserved = sum(self._budget.reserved.values())
        if self._prefixes is None:
            return KvCounts(reserved=reserved)
        pool = self._prefixes.pool
        return KvCounts(pool.num_blocks, pool.num_free, pool.num_held, pool.num_kept, reserved)

    def fits(self, row: Row, without: Collection[Row] = ()) -> bool:
        """Whether the row's whole sequence could be held, once the rows `without` have left."""
        leaving = [each.window for each in without if each.window is not None]
        return self._budget.fits(self._share(row), leaving)

    def admit(self, row: Row, waiting: Iterable[Row]) -> None:
        """Give the row a window, with the longest known beginning of its tokens in it."""
        prefixes, share = self._prefixes, self._share(row)
        if prefixes is None:
            row.window = self._windows.take(row.row_id)
        else:
            prefixes.open(row)
            price = partial(prefixes.num_copies, row)
            row.window = self._windows.take(row.row_id, price)
        if self._budget.reserve(row.window, share):
            self._give_back(row.window, share * BLOCK_TOKENS)
        if prefixes is None:
            known = self._restore_prefix
            row.num_computed = 0 if known is None else known(row.tokens, row.window)
        else:
            row.skip_to(self._restore(row, prefixes, waiting))
        assert 0 <= row.num_computed < len(row.tokens), row.num_computed

    def look_again(self, row: Row) -> None:
        """The row is about to read more of its prompt: another row, admitted with it, may have
        sealed that part since."""
        if self._prefixes is not None and self._prefixes.open(row) > row.num_computed:
            row.skip_to(self._prefixes.load(row))

    def seal(self, row: Row) -> None:
        """The row committed a step: what can be shared of it is."""
        if self._prefixes is None:
            return
        self._prefixes.save_ahead(self._windows.free_windows)
        wanted = self._prefixes.num_unsealed(row)
        if wanted:
            used = self._prefixes.num_used
            self._cool(used + wanted)
            self._prefixes.seal(row, wanted - self._budget.excess(used + wanted))

    def free(self, row: Row) -> None:
        """The row gives its window back. No step in flight names it."""
        assert row.window is not None, row.row_id
        self._windows.free(row.window, row.row_id)
        if self._prefixes is None:
            self._budget.free(row.window)
            self._engine.release_window(row.window)
        else:
            # A row that left while it read its prompt has touched less, one whose chunk failed
            # more than it has computed: the bound covers both.
            self._budget.keep(row.window, window_blocks(len(row.tokens) + MAX_UNWOUND))
        row.window = None

    def forget(self, row: Row, failed: bool = False) -> None:
        """The row ended, or will never run: nothing is held for it any more. `failed`: its KV may
        be why, and is shared no further."""
        if self._prefixes is None:
            return
        if failed:
            self._prefixes.discard(row)
        else:
            self._prefixes.close(row)

    def clear(self) -> None:
        """After a broken tick: every window is free, nothing is known."""
        if self._prefixes is not None:
            self._prefixes.clear()
        for window in {*self._windows.held, *self._budget.warm}:
            self._engine.release_window(window)
        self._windows = WindowLedger(self._engine.num_windows)
        self._budget = KvBudget(self._budget.total)

    def check(
        self, holders: Collection[Row], rows: Collection[Row], waiting: Iterable[Row]
    ) -> None:
        """`holders` are the rows with a window, `rows` those of them that have not ended."""
        self._windows.check()
        held = {row.window: row.row_id for row in holders}
        assert self._windows.held == held, (self._windows.held, held)
        assert self._budget.reserved.keys() == held.keys(), (self._budget.reserved, held)
        pooled = 0 if self._prefixes is None else self._prefixes.num_used
        self._budget.check(pooled)
        if self._prefixes is not None:
            ids = {row.row_id for row in waiting}
            self._prefixes.check({row.row_id for row in rows}, ids)

    def _restore(self, row: Row, prefixes: PrefixCache, waiting: Iterable[Row]) -> int:
        self._cool(prefixes.num_used)
        excess = self._budget.excess(prefixes.num_used)
        if excess:
            prefixes.give_up(excess, row.row_id, {each.row_id for each in waiting})
        return prefixes.load(row)

    def _share(self, row: Row) -> int:
        tokens = row.num_prompt + row.request.max_tokens
        return window_blocks(min(tokens, self._engine.capacity))

    def _cool(self, num_pooled: int) -> None:
        """Give back the pages of free windows until a pool of `num_pooled` blocks fits, or none
        is left."""
        while self._budget.excess(num_pooled) and (window := self._budget.cool()) is not None:
            self._give_back(window)

    def _give_back(self, window: int, first: int = 0) -> None:
        """The pages of a window's positions from `first` on, once what others count on is saved."""
        if self._prefixes is not None:
            self._prefixes.leave(window, first)
        self._engine.release_window(window, first)
