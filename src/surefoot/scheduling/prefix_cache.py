"""Prefix reuse: what rows computed is sealed into blocks, and later rows begin from them.

Owns the pool's ledger, its index, where the blocks lie and each row's chain; tells the engine what
to copy. Knows rows; must not know steps, ticks or who is admitted when. `docs/prefix-cache.md`
states the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from surefoot.cache.block_places import BlockPlaces
from surefoot.cache.block_pool import BLOCK_TOKENS, BlockPool
from surefoot.cache.prefix_index import BlockHash, Place, PrefixIndex, Tip, blake2b_key
from surefoot.core.step import BlockSource, BlockStore
from surefoot.scheduling.row import Row

BLOCKS_AHEAD = 1
"""Saved with each committed step while no free window is clean: 0.1 to 0.5 ms for the default
model. A conversation is saved in a sixteenth as many steps as it has tokens; all of a long one at
once would take that from the steps of others."""


@dataclass(slots=True)
class _Chain:
    """The blocks a row holds: its first `len(blocks) * BLOCK_TOKENS` tokens, and nothing past
    what it has computed. `sealing` False: it stores no more (it was asked for its room, or its
    next key is another's)."""

    tip: Tip
    blocks: list[int] = field(default_factory=list)
    sealing: bool = True

    def grow(self, place: Place, block: int) -> None:
        self.blocks.append(block)
        self.tip = place.tip_at(block)


class PrefixCache:
    """`model` names the weights whose KV this is. `block_hash`: see `cache.prefix_index`."""

    def __init__(self, store: BlockStore, model: str, block_hash: BlockHash = blake2b_key) -> None:
        self._store = store
        self._model = model
        self._hash = block_hash
        self._forget()

    @property
    def num_used(self) -> int:
        """Blocks whose memory is in use."""
        return self._pool.num_used

    @property
    def pool(self) -> BlockPool:
        """The ledger, for reading."""
        return self._pool

    def clear(self) -> None:
        """Forget everything: after a fault nobody knows what the blocks hold."""
        self._store.release_blocks(sorted(self._pool.used))
        self._forget()

    def _forget(self) -> None:
        self._pool = BlockPool(self._store.num_blocks)
        self._index = PrefixIndex(self._model, self._hash)
        self._places = BlockPlaces()
        self._chains: dict[int, _Chain] = {}

    def open(self, row: Row) -> int:
        """Hold the longest known beginning of the row's tokens, whole blocks, with at least one
        token left to compute. Returns its length in tokens. Again later: what became known since.
        """
        chain = self._chains.get(row.row_id)
        if chain is None:
            chain = _Chain(self._index.root(row.request.cache_salt))
            self._chains[row.row_id] = chain
        chain.sealing = True
        for index in range(len(chain.blocks), (len(row.tokens) - 1) // BLOCK_TOKENS):
            place = self._place(chain, row, index)
            if place.block is None:
                break
            self._pool.hold(place.block)
            chain.grow(place, place.block)
        return len(chain.blocks) * BLOCK_TOKENS

    def num_copies(self, row: Row, window: int) -> int:
        """Blocks that would have to be copied for the row to begin in this window: those it holds
        that are not in place there, and others that are nowhere else."""
        blocks = self._chains[row.row_id].blocks
        loaded = sum(not self._places.is_in(block, window) for block in blocks)
        return loaded + len(self._places.last_copies(window, staying=set(blocks)))

    def load(self, row: Row) -> int:
        """Bring what the row holds into its window, after what else it held is saved. Returns the
        tokens that are valid there."""
        assert row.window is not None, row.row_id
        blocks = self._chains[row.row_id].blocks
        self._save(row.window, self._places.leave(row.window, staying=set(blocks)))
        sources = [
            BlockSource(index * BLOCK_TOKENS, block, self._places.window_of(block))
            for index, block in enumerate(blocks)
            if not self._places.is_in(block, row.window)
        ]
        length = len(blocks) * BLOCK_TOKENS
        self._store.load_blocks(row.window, length, sources)
        for source in sources:
            self._places.put(source.block, row.window, source.position)
        return length

    def save_ahead(self, free_windows: Collection[int]) -> None:
        """While every free window would have to be saved before a row could begin there, save a
        little of the one that has least left: no row shall find them all full."""
        window = min(free_windows, key=self._places.num_unsaved, default=None)
        if window is not None:
            self._save(window, self._places.save(window, BLOCKS_AHEAD))

    def leave(self, window: int, first: int = 0) -> None:
        """The window's positions from `first` on are about to be given back."""
        self._save(window, self._places.leave(window, first))

    def num_unsealed(self, row: Row) -> int:
        """Whole blocks that the row has computed and does not hold."""
        chain = self._chains[row.row_id]
        return row.num_computed // BLOCK_TOKENS - len(chain.blocks) if chain.sealing else 0

    def seal(self, row: Row, num_new: int) -> None:
        """Hold every whole block of what the row has computed: of those that are not known up to
        `num_new` are new ones, others take the place of the oldest kept ones. They stay where they
        are: only committed positions are sealed, and no later step of the row writes those."""
        assert row.window is not None, row.row_id
        chain = self._chains[row.row_id]
        for index in range(len(chain.blocks), row.num_computed // BLOCK_TOKENS):
            place = self._place(chain, row, index)
            block = place.block
            if block is not None:
                self._pool.hold(block)
            else:
                block = None if place.taken else self._new_block(num_new)
                if block is None:
                    chain.sealing = not place.taken
                    break
                num_new -= 1
                self._index.add(place, block)
                self._places.put(block, row.window, index * BLOCK_TOKENS)
            chain.grow(place, block)

    def close(self, row: Row) -> None:
        """The row ended, or never ran: its blocks are kept for others while there is room."""
        chain = self._chains.pop(row.row_id, None)
        if chain is not None:
            self._let_go(chain)

    def discard(self, row: Row) -> None:
        """The row failed: nobody shall begin from what it was built on."""
        for block in self._chains[row.row_id].blocks:
            self._index.shut(block)
        self.close(row)

    def give_up(self, num_blocks: int, row_id: int, waiting: Collection[int]) -> None:
        """Free `num_blocks`, or all there are: first kept ones, oldest first; then those of rows
        that have their content in a window too; then those of rows set aside, which will read
        their tokens again; last those of `row_id`, for which room is made."""
        freed = self._evict(num_blocks)
        order = sorted(self._chains, key=lambda each: (each == row_id, each in waiting))
        for each in order:
            if len(freed) == num_blocks:
                break
            self._let_go(self._chains[each])
            self._chains[each].sealing = each == row_id
            freed += self._evict(num_blocks - len(freed))
        self._store.release_blocks(freed)

    def check(self, row_ids: Collection[int], waiting: Collection[int]) -> None:
        """Every block is free, kept, or held by the chains of known rows, so often as they say."""
        self._pool.check()
        self._index.check(self._pool.used)
        self._places.check(self._pool.used)
        assert set(row_ids) <= self._chains.keys() <= {*row_ids, *waiting}, list(self._chains)
        held = Counter(block for chain in self._chains.values() for block in chain.blocks)
        for block in self._pool.used:
            assert self._pool.num_holders(block) == held[block], (block, held)

    def _place(self, chain: _Chain, row: Row, index: int) -> Place:
        first = index * BLOCK_TOKENS
        return self._index.place(chain.tip, row.tokens[first : first + BLOCK_TOKENS])

    def _new_block(self, num_new: int) -> int | None:
        if num_new > 0 and self._pool.num_free:
            return self._pool.take()
        block = self._pool.reuse()
        if block is not None:
            self._index.remove(block)
            if self._places.drop(block):
                # Its new content lies in a window: its memory is not in use until that is saved.
                self._store.release_blocks([block])
        return block

    def _save(self, window: int, copies: Sequence[tuple[int, int]]) -> None:
        if copies:
            self._store.store_blocks(window, copies)

    def _let_go(self, chain: _Chain) -> None:
        """Last block first, so that what follows a block is always older than the block."""
        for block in reversed(chain.blocks):
            self._pool.release(block)
        chain.blocks.clear()
        chain.tip = self._index.root(chain.tip.salt)

    def _evict(self, num_blocks: int) -> list[int]:
        freed: list[int] = []
        while len(freed) < num_blocks and (block := self._pool.evict()) is not None:
            self._index.remove(block)
            self._places.drop(block)
            freed.append(block)
        return freed
