"""The windows' bytes: address space until a token is written, zeros again once given back."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from support.engine_runs import JointForward
from support.tiny_models import TinyModel
from surefoot.engine.kv_memory import KvMemory
from surefoot.graph.spec import ModelSpec
from surefoot.loading.gguf.model import load_gguf

SPEC = ModelSpec(
    architecture="llama",
    num_layers=30,
    hidden_size=576,
    intermediate_size=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=1000,
    context_length=8192,
    rms_eps=1e-5,
    rope_theta=1e5,
    rope_interleaved=True,
    tied_embedding=True,
)
"""The default model's shape: 46 KB a token."""


if sys.platform == "linux":

    def resident_bytes() -> int:
        """Anonymous memory of this process, from Linux's own count."""
        status = Path("/proc/self/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
        return int(line.split()[1]) * 1024

    def test_windows_cost_what_is_written_in_them() -> None:
        before = resident_bytes()
        memory = KvMemory(SPEC, num_windows=4, capacity=2048)
        total = 4 * 2048 * SPEC.kv_bytes_per_token
        assert total == 4 * 2048 * 46_080
        assert resident_bytes() - before < total / 20
        for window in range(4):
            memory.array(window)[:, :, :16] = 1.0
        assert resident_bytes() - before < total / 20
        memory.array(0)[...] = 1.0
        written = resident_bytes() - before
        assert written > total / 4
        memory.release(0)
        assert resident_bytes() - before < written - total / 5


def test_a_released_window_reads_as_zeros_and_the_others_stay() -> None:
    memory = KvMemory(SPEC, num_windows=2, capacity=64)
    for window in range(2):
        memory.array(window)[...] = 1.0 + window
    memory.release(0)
    assert not memory.array(0).any()
    assert (memory.array(1) == 2.0).all()
    memory.array(0)[...] = 3.0
    assert (memory.array(0) == 3.0).all()


def test_the_end_of_a_window_goes_back_alone() -> None:
    """Pages that hold a kept position too stay: here a page is 16 positions of a head."""
    memory = KvMemory(SPEC, num_windows=2, capacity=64)
    for window in range(2):
        memory.array(window)[...] = 1.0 + window
    memory.release(0, 20)
    assert (memory.array(0)[:, :, :20] == 1.0).all()
    assert not memory.array(0)[:, :, 32:].any()
    assert (memory.array(1) == 2.0).all()
    memory.release(0, 64)
    assert (memory.array(0)[:, :, :20] == 1.0).all()


def test_a_page_that_two_heads_share_stays() -> None:
    spec = replace(SPEC, num_layers=2, head_dim=20)
    memory = KvMemory(spec, num_windows=1, capacity=70)
    memory.array(0)[...] = 1.0
    memory.release(0, 16)
    assert (memory.array(0)[:, :, :16] == 1.0).all()


def test_values_are_the_arrays_themselves() -> None:
    """What ONNX Runtime writes is what the arrays show, and the other way round."""
    memory = KvMemory(SPEC, num_windows=1, capacity=16)
    values = memory.values(0)
    assert len(values) == 2 * SPEC.num_layers
    assert all(value.shape() == [1, 3, 16, 64] for value in values)
    memory.array(0)[5] = 7.0
    assert (values[5].numpy() == 7.0).all()
    assert not values[4].numpy().any()
    assert memory.values(0)[5] is values[5]


def test_noise_fills_as_many_positions_as_asked() -> None:
    memory = KvMemory(SPEC, num_windows=1, capacity=16)
    memory.fill(0, 9)
    assert np.isfinite(memory.array(0)).all()
    assert memory.array(0)[:, :, :9].any(axis=-1).all()
    assert not memory.array(0)[:, :, 9:].any()


def test_a_row_writes_its_own_window_and_no_further(tmp_path: Path) -> None:
    """As many positions as it has tokens, in every layer."""
    model = load_gguf(TinyModel().write(tmp_path / "tiny.gguf"))
    forward = JointForward(model, tmp_path / "graphs", num_windows=3, capacity=64)
    forward.logits((1, list(range(30)), 0))
    forward.logits((1, [7, 7, 7], 30))
    memory = forward.memory
    assert memory.array(1)[:, :, :33].any(axis=-1).all()
    assert not memory.array(1)[:, :, 33:].any()
    assert not memory.array(0).any()
    assert not memory.array(2).any()
