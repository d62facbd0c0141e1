"""Hugging Face's tensor names, and float tensors of each kind, number by number."""

from __future__ import annotations

import numpy as np
import pytest

from surefoot.errors import ModelError
from surefoot.graph.spec import DenseWeight
from surefoot.loading.hf.safetensors import StoredTensor
from surefoot.loading.hf.tensors import FloatTensors, as_float32, by_gguf_name, gguf_name

ONE = StoredTensor("F32", np.array([1.0], dtype="<f4"))
LAYER = "model.layers.11."


@pytest.mark.parametrize(
    ("architecture", "stored", "name"),
    [
        ("llama", "model.embed_tokens.weight", "token_embd.weight"),
        ("llama", "model.norm.weight", "output_norm.weight"),
        ("llama", "lm_head.weight", "output.weight"),
        ("llama", LAYER + "self_attn.q_proj.weight", "blk.11.attn_q.weight"),
        ("llama", LAYER + "self_attn.o_proj.weight", "blk.11.attn_output.weight"),
        ("llama", LAYER + "input_layernorm.weight", "blk.11.attn_norm.weight"),
        ("llama", LAYER + "post_attention_layernorm.weight", "blk.11.ffn_norm.weight"),
        ("llama", LAYER + "mlp.down_proj.weight", "blk.11.ffn_down.weight"),
        ("llama", LAYER + "mlp.down_proj.scales", "blk.11.ffn_down.scales"),
        ("qwen2", LAYER + "self_attn.k_proj.bias", "blk.11.attn_k.bias"),
        ("qwen3", LAYER + "self_attn.k_norm.weight", "blk.11.attn_k_norm.weight"),
        ("gemma3", LAYER + "post_attention_layernorm.weight", "blk.11.post_attention_norm.weight"),
        ("gemma3", LAYER + "pre_feedforward_layernorm.weight", "blk.11.ffn_norm.weight"),
        ("gemma3", LAYER + "post_feedforward_layernorm.weight", "blk.11.post_ffw_norm.weight"),
        ("gemma3", "language_model.model.norm.weight", "output_norm.weight"),
        ("gemma3", "model.language_model.norm.weight", "output_norm.weight"),
        ("gemma3", "language_model.lm_head.weight", "output.weight"),
        # What the text model does not use.
        ("gemma3", "vision_tower.patch.weight", None),
        ("gemma3", "model.vision_tower.patch.weight", None),
        ("gemma3", "multi_modal_projector.weight", None),
        ("llama", LAYER + "self_attn.rotary_emb.inv_freq", None),
        # What is not known stays, to be found by the check of names.
        ("llama", LAYER + "mlp.experts.0.up.weight", LAYER + "mlp.experts.0.up.weight"),
        ("llama", LAYER + "pre_feedforward_norm.bias", LAYER + "pre_feedforward_norm.bias"),
        ("llama", "score.weight", "score.weight"),
    ],
)  # fmt: skip
def test_names(architecture: str, stored: str, name: str | None) -> None:
    assert gguf_name(stored, architecture) == name


@pytest.mark.parametrize(
    ("tied", "names"),
    [
        (True, {"token_embd.weight"}),
        (False, {"token_embd.weight", "output.weight", "output.scales"}),
    ],
)
def test_a_tied_model_needs_no_output_matrix(tied: bool, names: set[str]) -> None:
    stored = ["model.embed_tokens.weight", "lm_head.weight", "lm_head.scales", "visual.x.weight"]
    assert set(by_gguf_name("m", dict.fromkeys(stored, ONE), "qwen2", tied)) == names


def test_two_names_for_one_tensor_are_refused() -> None:
    stored = dict.fromkeys(["model.norm.weight", "language_model.model.norm.weight"], ONE)
    with pytest.raises(ModelError) as caught:
        by_gguf_name("m", stored, "gemma3", False)
    assert caught.value.message == (
        "m: tensor language_model.model.norm.weight is there under another name too"
    )


@pytest.mark.parametrize(
    ("dtype", "raw", "values"),
    [
        ("F32", np.array([1.5, -2.0], dtype="<f4"), [1.5, -2.0]),
        ("F16", np.array([0x3C00, 0xC000, 0x0001], dtype="<u2").view("<f2"), [1.0, -2.0, 2**-24]),
        ("BF16", np.array([0x3F80, 0xC000, 0x4049], dtype="<u2"), [1.0, -2.0, 3.140625]),
    ],
)
def test_each_kind_of_float(dtype: str, raw: np.ndarray, values: list[float]) -> None:  # type: ignore[type-arg]
    found = as_float32(StoredTensor(dtype, raw))
    assert found.dtype == np.float32
    assert found.tolist() == values


def test_values_outlive_a_file_that_is_not_aligned() -> None:
    buffer = bytearray(b"\x00" + np.array([1.0, 2.0], dtype="<f4").tobytes())
    raw = np.ndarray((2,), dtype="<f4", buffer=buffer, offset=1)
    found = as_float32(StoredTensor("F32", raw))
    buffer[:] = bytes(len(buffer))
    assert found.tolist() == [1.0, 2.0]
    assert found.flags.aligned


def test_norms_that_are_stored_less_one() -> None:
    names = {"blk.0.attn_norm.weight": ONE, "blk.0.attn_q.weight": ONE, "output_norm.weight": ONE}
    plain = FloatTensors("m", names, norms_from_one=False)
    shifted = FloatTensors("m", names, norms_from_one=True)
    assert [float(plain.values(name)[0]) for name in names] == [1, 1, 1]
    assert [float(shifted.values(name)[0]) for name in names] == [2, 1, 2]
    weight = shifted.load("output_norm.weight")
    assert isinstance(weight, DenseWeight)
    assert weight.values.tolist() == [2]
    assert shifted.shapes() == dict.fromkeys(names, (1,))
    assert {shifted.type_of(name) for name in shifted.names()} == {"F32"}


def test_a_tensor_of_another_kind_is_refused() -> None:
    packed = StoredTensor("U32", np.array([1], dtype="<u4"))
    with pytest.raises(ModelError) as caught:
        FloatTensors("m", {"blk.0.attn_q.weight": packed}, norms_from_one=False)
    assert caught.value.message == (
        "m: tensor blk.0.attn_q.weight has type U32; a model that is not quantized has F32, F16 "
        "and BF16 only"
    )


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC0])
def test_a_value_that_is_not_finite_is_refused_when_loaded(bits: int) -> None:
    tensors = {"x": StoredTensor("BF16", np.array([0x3F80, bits], dtype="<u2"))}
    with pytest.raises(ModelError, match="m: tensor x holds values that are not finite"):
        FloatTensors("m", tensors, norms_from_one=False).load("x")
