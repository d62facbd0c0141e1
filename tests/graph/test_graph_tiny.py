"""A tiny Llama's graph against plain numpy over the same file, in float arithmetic to 1e-4."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from support.engine_runs import JointForward
from support.tiny_models import LINEAR_TYPES, TinyModel, TinyShape, numpy_logits, write_gguf
from surefoot.loading.gguf.model import load_gguf

VOCAB = 256


def random_ids(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, length).tolist()


def rms(values: NDArray[np.floating]) -> float:
    return float(np.sqrt((values**2).mean()))


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", LINEAR_TYPES, ids=lambda kind: kind.name)
def test_logits_of_every_weight_type(tmp_path: Path, kind: Type, tied: bool) -> None:
    model = TinyModel(linear=kind, tied=tied)
    path = model.write(tmp_path / "tiny.gguf")
    ids = random_ids(48)
    (found,) = JointForward(load_gguf(path), tmp_path / "graphs").logits((0, ids, 0))
    np.testing.assert_allclose(found, numpy_logits(path, model.shape, ids), atol=1e-4)


@pytest.mark.parametrize("kind", [Type.Q8_0, Type.Q4_0, Type.Q4_1], ids=lambda kind: kind.name)
def test_8_bit_activations_stay_near(tmp_path: Path, kind: Type) -> None:
    """As they are served: off by a fraction of the logits' own spread."""
    model = TinyModel(linear=kind)
    path = model.write(tmp_path / "tiny.gguf")
    ids = random_ids(48)
    wanted = numpy_logits(path, model.shape, ids)
    forward = JointForward(load_gguf(path), tmp_path / "graphs", accuracy_level=4)
    (found,) = forward.logits((0, ids, 0))
    assert 0 < rms(found - wanted) < 0.1 * rms(wanted)


@pytest.mark.parametrize(
    "embedding", [Type.F32, Type.Q8_0, Type.Q4_0, Type.Q4_1], ids=lambda kind: kind.name
)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_embeddings_of_another_type_than_the_layers(
    tmp_path: Path, embedding: Type, tied: bool
) -> None:
    model = TinyModel(linear=Type.Q4_0, embedding=embedding, tied=tied)
    path = model.write(tmp_path / "tiny.gguf")
    ids = random_ids(24)
    (found,) = JointForward(load_gguf(path), tmp_path / "graphs").logits((0, ids, 0))
    np.testing.assert_allclose(found, numpy_logits(path, model.shape, ids), atol=1e-4)


def test_layers_whose_tensors_have_different_types(tmp_path: Path) -> None:
    """Fused where they are alike, side by side where not."""
    kinds = {
        "attn_q": Type.Q4_1,
        "attn_k": Type.Q4_1,
        "attn_v": Type.Q8_0,
        "attn_output": Type.F16,
        "ffn_gate": Type.Q4_0,
        "ffn_up": Type.Q8_0,
        "ffn_down": Type.Q4_1,
        "token_embd": Type.Q8_0,
        "output": Type.Q4_1,
    }
    model = TinyModel()
    path = write_gguf(
        tmp_path / "tiny.gguf",
        model.metadata(),
        model.tensors(),
        lambda name: kinds.get(name.split(".")[-2], Type.F32),
    )
    ids = random_ids(24)
    (found,) = JointForward(load_gguf(path), tmp_path / "graphs").logits((0, ids, 0))
    np.testing.assert_allclose(found, numpy_logits(path, model.shape, ids), atol=1e-4)


@pytest.mark.parametrize(
    "shape",
    [
        TinyShape(heads=4, kv_heads=4),
        TinyShape(heads=4, kv_heads=1),
        TinyShape(heads=3, kv_heads=1, head_dim=32),
        TinyShape(layers=1, vocab=257, mlp=64),
        TinyShape(rope_theta=1e6, rms_eps=1e-2),
    ],
    ids=["all-heads", "one-kv-head", "wide-heads", "odd-vocab", "constants"],
)
def test_logits_of_other_shapes(tmp_path: Path, shape: TinyShape) -> None:
    model = TinyModel(linear=Type.Q8_0, shape=shape)
    path = model.write(tmp_path / "tiny.gguf")
    ids = random_ids(40)
    (found,) = JointForward(load_gguf(path), tmp_path / "graphs").logits((0, ids, 0))
    np.testing.assert_allclose(found, numpy_logits(path, shape, ids), atol=1e-4)


@pytest.mark.parametrize("kind", [Type.F32, Type.Q4_1], ids=lambda kind: kind.name)
def test_joint_forwards_of_mixed_widths(tmp_path: Path, kind: Type) -> None:
    """Three rows over windows out of order, each a step further with every forward."""
    model = TinyModel(linear=kind, tied=True)
    path = model.write(tmp_path / "tiny.gguf")
    forward = JointForward(load_gguf(path), tmp_path / "graphs", num_windows=5)
    windows = (3, 0, 4)
    texts = {window: random_ids(60, seed=window) for window in windows}
    wanted = {window: numpy_logits(path, model.shape, ids) for window, ids in texts.items()}
    starts = dict.fromkeys(windows, 0)
    for widths in ((17, 1, 5), (1, 1, 1), (3, 20, 1), (1, 8, 40), (2, 2, 2)):
        feeds = []
        for window, width in zip(windows, widths, strict=True):
            start = starts[window]
            feeds.append((window, texts[window][start : start + width], start))
            starts[window] += width
        for (window, ids, start), logits in zip(feeds, forward.logits(*feeds), strict=True):
            expected = wanted[window][start : start + len(ids)]
            np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_a_window_may_be_wound_back(tmp_path: Path) -> None:
    """A rejected draft is undone by the next forward's smaller start."""
    model = TinyModel(linear=Type.Q4_1)
    path = model.write(tmp_path / "tiny.gguf")
    forward = JointForward(load_gguf(path), tmp_path / "graphs")
    ids, draft = random_ids(30), random_ids(9, seed=1)
    forward.logits((0, ids[:20], 0))
    forward.logits((0, [ids[20], *draft], 20))
    (found,) = forward.logits((0, ids[21:], 21))
    np.testing.assert_allclose(found, numpy_logits(path, model.shape, ids)[21:], atol=1e-4)


def test_only_the_asked_positions_reach_the_head(tmp_path: Path) -> None:
    """In any order, and one of them twice."""
    model = TinyModel(linear=Type.Q8_0)
    path = model.write(tmp_path / "tiny.gguf")
    forward = JointForward(load_gguf(path), tmp_path / "graphs")
    ids, asked = random_ids(30), [29, 0, 7, 7]
    (found,) = forward.logits((0, ids, 0), asked=asked)
    np.testing.assert_allclose(found, numpy_logits(path, model.shape, ids)[asked], atol=1e-4)


def test_the_context_can_be_filled_to_its_end(tmp_path: Path) -> None:
    shape = replace(TinyShape(), context=96)
    path = TinyModel(linear=Type.Q8_0, shape=shape).write(tmp_path / "tiny.gguf")
    ids = random_ids(96)
    forward = JointForward(load_gguf(path), tmp_path / "graphs", capacity=96)
    forward.logits((0, ids[:95], 0))
    (last,) = forward.logits((0, ids[95:], 95))
    np.testing.assert_allclose(last, numpy_logits(path, shape, ids)[95:], atol=1e-4)
