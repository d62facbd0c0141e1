"""Which block holds the KV of which tokens after which beginning.

Knows blocks by number and sequences by token ids; must not know who holds a block. KV depends on
everything before a position, so a block is found only at the end of the same chain of blocks.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b

BlockHash = Callable[[bytes, bytes], bytes]
"""`block_hash(parent, content)`: the key of `content` after the chain that `parent` is the key
of. Strong enough that keys spread; equality is decided by comparison."""


def blake2b_key(parent: bytes, content: bytes) -> bytes:
    """16 bytes of blake2b over both."""
    return blake2b(parent + content, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Tip:
    """The end of a chain: its last block (None: nothing yet), and the chain's key."""

    salt: str
    key: bytes
    block: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block with `ids` after `tip` belongs. `block`: the one that is there. `taken`: the
    key belongs to other content, so none can be put there."""

    tip: Tip
    ids: tuple[int, ...]
    key: bytes
    block: int | None
    taken: bool

    def tip_at(self, block: int) -> Tip:
        """The chain's end once `block` is there."""
        return Tip(self.tip.salt, self.key, block)


@dataclass(frozen=True, slots=True)
class _Entry:
    block: int
    parent: int | None
    salt: str
    ids: tuple[int, ...]


class PrefixIndex:
    """One model's blocks. `model` names it; sequences of different salts never meet.

    A hash is only where to look: salt, parent block and token ids must all be equal, and the
    parent was found in the same way, so by induction the whole prefix is. Content whose key is
    taken by other content is simply not indexed.
    """

    def __init__(self, model: str, block_hash: BlockHash = blake2b_key) -> None:
        self._model = model
        self._hash = block_hash
        self._entries: dict[bytes, _Entry] = {}
        self._shut: dict[int, _Entry] = {}
        self._keys: dict[int, bytes] = {}
        self._num_children: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def root(self, salt: str) -> Tip:
        """The beginning of every sequence under this salt."""
        return Tip(salt, self._hash(b"", f"{self._model}\0{salt}".encode()))

    def place(self, tip: Tip, ids: Sequence[int]) -> Place:
        """Look for a block with exactly `ids` after `tip`."""
        content = tuple(ids)
        key = self._hash(tip.key, array("q", content).tobytes())
        entry = self._entries.get(key)
        if entry is None:
            return Place(tip, content, key, None, False)
        same = (entry.salt, entry.parent, entry.ids) == (tip.salt, tip.block, content)
        return Place(tip, content, key, entry.block if same else None, not same)

    def add(self, place: Place, block: int) -> None:
        """`block` now holds the content of a place where none is and none other's."""
        assert place.block is None, place
        assert not place.taken, place
        assert place.key not in self._entries, place
        assert block not in self._keys, f"block {block} holds other content"
        parent = place.tip.block
        assert parent is None or parent in self._keys, f"block {parent} left before {block} came"
        self._entries[place.key] = _Entry(block, parent, place.tip.salt, place.ids)
        self._keys[block] = place.key
        if parent is not None:
            self._num_children[parent] += 1

    def shut(self, block: int) -> None:
        """Let nobody find the block any more, nor what follows it: its content is in doubt. It
        stays until it is removed; its key is free for another block with the same ids."""
        if block not in self._shut:
            self._shut[block] = self._entries.pop(self._keys[block])

    def remove(self, block: int) -> None:
        """Forget a block that nothing follows: chains go from their ends."""
        assert not self._num_children[block], f"block {block} leaves before what follows it"
        key = self._keys.pop(block)
        entry = self._shut.pop(block, None) or self._entries.pop(key)
        del self._num_children[block]
        if entry.parent is not None:
            self._num_children[entry.parent] -= 1

    def check(self, used: Collection[int]) -> None:
        """The blocks with content are `used`; every parent is there and counts its children."""
        assert set(self._keys) == set(used), (sorted(self._keys), sorted(used))
        entries = [*self._entries.values(), *self._shut.values()]
        assert sorted(entry.block for entry in entries) == sorted(used), (entries, used)
        children = Counter(entry.parent for entry in entries)
        for parent, count in children.items():
            if parent is not None:
                assert parent in self._keys, f"block {parent} is followed, and not there"
                assert self._num_children[parent] == count, (parent, count)
