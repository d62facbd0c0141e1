"""Copies between windows and blocks, float for float."""

from __future__ import annotations

import numpy as np

from surefoot.cache.block_pool import BLOCK_TOKENS
from surefoot.engine.block_memory import BlockMemory
from surefoot.engine.kv_memory import KvMemory
from surefoot.graph.spec import ModelSpec


def spec(head_dim: int = 12) -> ModelSpec:
    """Sizes that fit no page."""
    return ModelSpec(
        architecture="llama",
        num_layers=3,
        hidden_size=24,
        intermediate_size=32,
        num_heads=2,
        num_kv_heads=2,
        head_dim=head_dim,
        vocab_size=10,
        context_length=64,
        rms_eps=1e-5,
        rope_theta=1e4,
        rope_interleaved=True,
        tied_embedding=True,
    )


def filled(
    memory: KvMemory, window: int, seed: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The window's content, random now."""
    array = memory.array(window)
    array[:] = np.random.default_rng(seed).standard_normal(array.shape, dtype=np.float32)
    return array.copy()


def test_blocks_carry_a_beginning_from_one_window_to_another() -> None:
    memory, blocks = KvMemory(spec(), 2, 50), BlockMemory(spec(), 4)
    first, second = filled(memory, 0, 1), filled(memory, 1, 2)
    blocks.store(memory.array(0), 0, 3)
    blocks.store(memory.array(0), BLOCK_TOKENS, 1)
    blocks.load(memory.array(1), 0, 3)
    blocks.load(memory.array(1), BLOCK_TOKENS, 1)
    both = 2 * BLOCK_TOKENS
    assert np.array_equal(memory.array(1)[:, :, :both], first[:, :, :both])
    assert np.array_equal(memory.array(1)[:, :, both:], second[:, :, both:])
    assert np.array_equal(memory.array(0), first)


def test_releasing_a_block_leaves_its_neighbours() -> None:
    memory, blocks = KvMemory(spec(), 2, 50), BlockMemory(spec(), 3)
    content = filled(memory, 0, 1)[:, :, :BLOCK_TOKENS]
    for block in range(3):
        blocks.store(memory.array(0), 0, block)
    blocks.release([1])
    blocks.store(memory.array(0), BLOCK_TOKENS, 1)
    blocks.release([1])
    for block in (0, 2):
        blocks.load(memory.array(1), 0, block)
        assert np.array_equal(memory.array(1)[:, :, :BLOCK_TOKENS], content)


def test_windows_are_bound_where_their_array_is() -> None:
    memory = KvMemory(spec(), 2, 50)
    content = filled(memory, 1, 7)
    values = memory.values(1)
    assert len(values) == 6
    for value, part in zip(values, content, strict=True):
        assert value.shape() == [1, 2, 50, 12]
        assert np.array_equal(value.numpy()[0], part)


def test_a_pool_of_no_blocks_is_a_pool() -> None:
    assert BlockMemory(spec(), 0).num_blocks == 0
