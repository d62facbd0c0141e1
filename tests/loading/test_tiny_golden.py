"""The golden tiny models (logits by transformers in float32), from safetensors and from GGUF."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from support.graph_runs import GraphRun
from support.model_files import write_gguf
from surefoot.loading.fidelity import form_of
from surefoot.loading.model import LoadedModel
from surefoot.loading.open import load_model
from surefoot.loading.quantizing import QUANTIZE, Quantize

TINY = Path(__file__).parents[1] / "data" / "tiny"
FAMILIES = ("llama", "qwen2", "qwen3")


def golden(family: str) -> tuple[list[int], NDArray[np.float32]]:
    with np.load(TINY / family / "golden.npz") as file:
        return [int(token) for token in file["input_ids"][0]], file["logits"][0]


def logits_of(model: LoadedModel, ids: list[int], **options: int) -> NDArray[np.float32]:
    return GraphRun(model.spec, model.weights, **options).feed(ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_floats_from_safetensors_give_the_golden_logits(family: str) -> None:
    ids, wanted = golden(family)
    found = logits_of(load_model(TINY / family, "none"), ids)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_fed_one_by_one_give_the_golden_logits(family: str) -> None:
    ids, wanted = golden(family)
    model = load_model(TINY / family, "none")
    run = GraphRun(model.spec, model.weights)
    run.feed(ids[:7])
    for position in range(7, len(ids)):
        found = run.feed(ids[position : position + 1], start=position)
        np.testing.assert_allclose(found[0], wanted[position], atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_written_to_gguf_and_read_back(family: str, tmp_path: Path) -> None:
    """As llama.cpp's converter does it: a Llama's rows of q and k reordered, its factors a
    tensor."""
    ids, wanted = golden(family)
    source = load_model(TINY / family, "none")
    spec, tensors = source.spec, {}
    for name in source.weights.names():
        values = source.weights.values(name)
        if family == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            heads = values.reshape(-1, 2, spec.head_dim // 2, values.shape[1])
            values = np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(values.shape)
        tensors[name] = values
    if spec.rope_factors:
        tensors["rope_freqs.weight"] = np.array(spec.rope_factors, dtype=np.float32)
    metadata = {
        f"{family}.block_count": spec.num_layers,
        f"{family}.context_length": spec.context_length,
        f"{family}.embedding_length": spec.hidden_size,
        f"{family}.feed_forward_length": spec.intermediate_size,
        f"{family}.attention.head_count": spec.num_heads,
        f"{family}.attention.head_count_kv": spec.num_kv_heads,
        f"{family}.attention.key_length": spec.head_dim,
        f"{family}.attention.layer_norm_rms_epsilon": spec.rms_eps,
        f"{family}.rope.freq_base": spec.rope_theta,
    }
    model = load_model(write_gguf(tmp_path / "m.gguf", family, metadata, tensors))
    assert model.spec.rope_interleaved == (family == "llama")
    np.testing.assert_allclose(logits_of(model, ids), wanted, atol=1e-4)


def test_without_its_scaled_rotation_the_llama_is_another() -> None:
    ids, wanted = golden("llama")
    model = load_model(TINY / "llama", "none")
    assert len(set(model.spec.rope_factors)) > 2
    plain = replace(model.spec, rope_factors=())
    assert np.abs(GraphRun(plain, model.weights).feed(ids) - wanted).max() > 1


@pytest.mark.parametrize(("quantize", "error"), [("q8", 0.04), ("q4", 0.5)])
@pytest.mark.parametrize("family", FAMILIES)
def test_quantized_at_load_they_stay_near(family: str, quantize: Quantize, error: float) -> None:
    """Root mean square over the logits' own spread; measured 0.021 to 0.025 and
    0.27 to 0.39 (the models are random, 64 wide, and have nothing to spare)."""
    ids, wanted = golden(family)
    found = logits_of(load_model(TINY / family, quantize), ids)
    assert np.sqrt(((found - wanted) ** 2).mean()) < error * wanted.std()


def test_quantizing_tells_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []
    model = load_model(TINY / "qwen3", progress=lambda done, total: told.append((done, total)))
    for name in (*model.weights.names(), "token_embd.weight"):
        model.weights.load(name)
    total = 3 * 7 + 1
    assert told == [(done, total) for done in range(1, total + 1)]
    four_bits = load_model(TINY / "qwen3", "q4").weights
    assert form_of(four_bits.load("blk.0.ffn_up.weight")) == "4 bits, blocks of 32"
    assert form_of(four_bits.load("token_embd.weight")) == "8 bits, blocks of 32"


def test_how_it_is_quantized_is_part_of_the_fingerprint() -> None:
    prints = {load_model(TINY / "qwen2", quantize).fingerprint for quantize in QUANTIZE}
    assert len(prints) == 3
    assert load_model(TINY / "qwen2").fingerprint == load_model(TINY / "qwen2", "q8").fingerprint
