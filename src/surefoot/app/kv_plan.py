"""How much memory KV may take, once the model's sizes are known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from surefoot.app.console import human_bytes
from surefoot.cache.block_pool import BLOCK_TOKENS
from surefoot.cache.budget import window_blocks
from surefoot.errors import ConfigError

if TYPE_CHECKING:
    from surefoot.engine.engine import Engine
    from surefoot.scheduling.storage import RowStorage


class StorageBackend(StrEnum):
    DENSE = "dense"
    PAGED = "paged"


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


AUTO_SHARE = 0.5
"""Of the memory that is free before the model is opened, what KV may take: the rest is for the
weights, which are file pages that the system likes to keep, and for everything else."""


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """`budget`: bytes, "auto" or "none". `prompt_cache` False: no blocks are kept."""

    backend: StorageBackend = StorageBackend.DENSE
    budget: int | str = "none"
    prompt_cache: bool = True


def storage_options(
    backend: StorageBackend | None, budget: str, prompt_cache: bool, parallel: int
) -> StorageOptions:
    """Raises `ConfigError` for a budget that says no number of bytes."""
    if backend is None:
        backend = StorageBackend.PAGED if parallel > 1 else StorageBackend.DENSE
    return StorageOptions(backend, parse_budget(budget), prompt_cache)


def parse_budget(text: str) -> int | str:
    """Bytes, "auto" or "none".

    >>> parse_budget("8G"), parse_budget("1.5GiB"), parse_budget("auto")
    (8000000000, 1610612736, 'auto')
    """
    plain = text.strip().lower()
    if plain in ("auto", "none"):
        return plain
    size = parse_bytes(plain)
    if size is None:
        raise ConfigError(
            f"--kv-cache-budget is {text!r}; it must be auto, none or bytes such as 8G or 512MiB",
            param="kv_cache_budget",
        )
    return size


def parse_bytes(text: str) -> int | None:
    """A number of bytes, with or without a unit; None for anything else."""
    plain = text.strip().lower()
    found = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)\s*([kmg]i?|)b?", plain, re.ASCII)
    return None if found is None else int(float(found[1]) * _UNITS[found[2]])


@dataclass(frozen=True, slots=True)
class StoragePlan:
    """Blocks of `block_bytes` each: `total` for windows and pool together (None: no limit),
    `num_blocks` that the pool may have (0: no pool)."""

    total: int | None
    num_blocks: int
    block_bytes: int
    reason: str = ""

    @property
    def backend(self) -> StorageBackend:
        return StorageBackend.PAGED if self.num_blocks else StorageBackend.DENSE

    def storage(self, engine: Engine, model: str) -> RowStorage:
        """The scheduler's part; `model` names the weights."""
        from surefoot.cache.budget import KvBudget
        from surefoot.scheduling.prefix_cache import PrefixCache
        from surefoot.scheduling.storage import RowStorage

        prefixes = PrefixCache(engine, model) if self.num_blocks else None
        return RowStorage(engine, KvBudget(self.total), prefixes)

    def summary(self) -> str:
        """A line for the person who starts the server."""
        kind = "paged, prompts that begin alike share blocks" if self.num_blocks else "dense"
        if self.total is None:
            return f"storage: {kind}; no limit (--kv-cache-budget none)"
        room = human_bytes(self.total * self.block_bytes)
        tokens = self.total * BLOCK_TOKENS
        return f"storage: {kind}; up to {room} of KV, {tokens:,} tokens ({self.reason})"

    def properties(self) -> dict[str, object]:
        """For `/props`."""
        return {
            "decode_storage_backend": self.backend.value,
            "kv_cache_budget": None if self.total is None else self.total * self.block_bytes,
            "block_tokens": BLOCK_TOKENS,
            "prompt_cache": bool(self.num_blocks),
        }


def plan_storage(
    options: StorageOptions,
    bytes_per_token: int,
    capacity: int,
    num_windows: int,
    free: int | None,
) -> StoragePlan:
    """How many blocks there are for `num_windows` windows of `capacity` tokens. `free`: bytes
    of memory that can be had; None: the system does not say. Raises `ConfigError` for a budget
    in which one whole window does not fit."""
    block_bytes = BLOCK_TOKENS * bytes_per_token
    least = window_blocks(capacity)
    paged = options.backend is StorageBackend.PAGED and options.prompt_cache
    most = num_windows * least * (2 if paged else 1)
    total: int | None = None
    if options.budget == "none":
        reason = "no limit"
    elif options.budget == "auto":
        total, reason = _auto(free, block_bytes, least, most)
    else:
        total, reason = int(options.budget) // block_bytes, "--kv-cache-budget"
        if total < least:
            raise ConfigError(
                f"--kv-cache-budget is {human_bytes(int(options.budget))}; one request of "
                f"{capacity:,} tokens takes {human_bytes(least * block_bytes)} "
                "(a smaller --ctx takes less)",
                param="kv_cache_budget",
            )
    pool = num_windows * least if total is None else total
    return StoragePlan(total, pool if paged else 0, block_bytes, reason)


def _auto(free: int | None, block_bytes: int, least: int, most: int) -> tuple[int, str]:
    """Half of what is free; no more than all windows and as much again can use, and no less
    than one window, without which nothing could be served."""
    if free is None:
        return most, "auto: the system does not tell its free memory; all that can be used"
    share = int(free * AUTO_SHARE) // block_bytes
    if share < least:
        return least, "auto: one whole context, which is more than half of the free memory"
    if share > most:
        return most, "auto: all that can be used, less than half of the free memory"
    return share, "auto: half of the free memory"
