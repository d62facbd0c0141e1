"""GGUF files as models: spec, weights, fingerprint, and what is refused with which words."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from support.tiny_models import LINEAR_TYPES, TinyModel, TinyShape, write_gguf
from surefoot.errors import ModelError
from surefoot.graph.spec import ModelSpec
from surefoot.loading.fidelity import dequantize, relative_error
from surefoot.loading.gguf.model import load_gguf

SMALL = TinyShape(vocab=32, hidden=32, layers=1, heads=2, kv_heads=1, mlp=32, context=64)
MODEL = TinyModel(linear=Type.Q8_0, shape=SMALL)
SUPPORTED = (
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS"
)


def write(path: Path, model: TinyModel = MODEL, **changes: object) -> Path:
    """The model's file with metadata changed; None removes a key. `__` in a name is a dot."""
    metadata = model.metadata()
    for name, value in changes.items():
        key = name.replace("__", ".")
        metadata[key] = value
        if value is None:
            del metadata[key]
    return write_gguf(path, metadata, model.tensors(), model.kind_of)


def complaint(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_gguf(path)
    message = caught.value.message
    assert message.startswith(f"{path.name}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path.name}: ")


@pytest.mark.parametrize("tied", [True, False])
def test_the_spec_is_the_metadata(tmp_path: Path, tied: bool) -> None:
    model = load_gguf(replace(MODEL, tied=tied).write(tmp_path / "tiny.gguf"))
    assert model.spec == ModelSpec(
        architecture="llama",
        num_layers=1,
        hidden_size=32,
        intermediate_size=32,
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        vocab_size=32,
        context_length=64,
        rms_eps=np.float32(1e-5),
        rope_theta=10000.0,
        rope_interleaved=True,
        tied_embedding=tied,
    )
    assert model.name == "tiny.gguf"
    assert model.tensor_types["blk.0.attn_q.weight"] == "Q8_0"
    assert model.tensor_types["blk.0.attn_norm.weight"] == "F32"
    assert ("output.weight" in model.tensor_types) is not tied
    matrices = 32 * 32 * (7 if tied else 8)
    assert model.weight_bytes == matrices // 32 * 34 + 3 * 32 * 4
    assert set(model.weights.names()) == set(model.tensor_types)


def test_defaults_for_what_the_metadata_leaves_out(tmp_path: Path) -> None:
    shape = replace(SMALL, kv_heads=2)
    path = write(
        tmp_path / "tiny.gguf",
        replace(MODEL, shape=shape),
        llama__attention__head_count_kv=None,
        llama__attention__key_length=None,
        llama__rope__freq_base=None,
        llama__rope__dimension_count=None,
    )
    spec = load_gguf(path).spec
    assert (spec.num_kv_heads, spec.head_dim, spec.rope_theta) == (2, 16, 10000.0)


@pytest.mark.parametrize("kind", LINEAR_TYPES, ids=lambda kind: kind.name)
def test_every_weight_is_the_files(tmp_path: Path, kind: Type) -> None:
    path = TinyModel(linear=kind, shape=SMALL).write(tmp_path / "tiny.gguf")
    weights = load_gguf(path).weights
    for tensor in gguf.GGUFReader(path).tensors:
        wanted = gguf.dequantize(tensor.data, tensor.tensor_type)
        found = dequantize(weights.load(tensor.name))
        if kind == Type.Q4_1:
            assert relative_error(found, wanted) < 2e-7
        else:
            np.testing.assert_array_equal(found, wanted)


def test_the_fingerprint_follows_content_of_the_header_size_and_time(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf")
    first = load_gguf(path).fingerprint
    assert load_gguf(path).fingerprint == first
    os.utime(path, ns=(1, 1))
    touched = load_gguf(path).fingerprint
    other = write(tmp_path / "other.gguf", llama__rope__freq_base=500.0)
    os.utime(other, ns=(1, 1))
    assert len({first, touched, load_gguf(other).fingerprint}) == 3


@pytest.mark.parametrize(
    "key",
    [
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
    ],
)
def test_metadata_that_is_missing(tmp_path: Path, key: str) -> None:
    path = write(tmp_path / "tiny.gguf", **{key.replace(".", "__"): None})
    assert complaint(path) == f"metadata {key} is missing"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("block_count", 0, "is 0, not a number above 0"),
        ("block_count", 4_000_000_000, "is 4000000000, above 4096"),
        ("block_count", "1", "is '1', not int"),
        ("block_count", True, "is True, not int"),
        ("context_length", 0, "is 0, not a number above 0"),
        ("context_length", 4_000_000_000, "is 4000000000, above 16777216"),
        ("embedding_length", 0, "is 0, not a number above 0"),
        ("embedding_length", 64, "tensor token_embd.weight has shape [32, 32]"),
        ("attention.head_count", 0, "is 0, not a number above 0"),
        ("attention.head_count", [2, 2], "is [2, 2], not int"),
        ("attention.head_count_kv", 0, "is 0, not a number above 0"),
        ("attention.head_count_kv", 3, "has 2 heads for 3 of keys"),
        ("attention.layer_norm_rms_epsilon", float("nan"), "is nan, not a number above 0"),
        ("attention.value_length", 8, "attention.value_length is 8"),
        ("rope.freq_base", 0.0, "is 0.0, not a number above 0"),
        ("rope.freq_base", float("inf"), "is inf, not a number above 0"),
        ("rope.dimension_count", 8, "rope.dimension_count is 8"),
    ],
)
def test_metadata_that_cannot_be(tmp_path: Path, key: str, value: object, words: str) -> None:
    path = write(tmp_path / "tiny.gguf", **{f"llama.{key}".replace(".", "__"): value})
    assert words in complaint(path)


def test_an_architecture_that_is_not_supported(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, MODEL.metadata(), MODEL.tensors(), MODEL.kind_of, architecture="mamba")
    message = complaint(path)
    assert message.startswith("architecture 'mamba' is not supported; supported: ")
    assert "llama" in message


@pytest.mark.parametrize("kind", ["yarn", "longrope"])
def test_rope_scaling_that_is_not_known_is_refused(tmp_path: Path, kind: str) -> None:
    changes = {"llama__rope__scaling__type": kind, "llama__rope__scaling__factor": 4.0}
    assert complaint(write(tmp_path / "a.gguf", **changes)) == (
        f"rope scaling ({kind}) is not supported"
    )


def test_a_scaling_factor_without_a_type_is_linear(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", llama__rope__scaling__factor=4.0)
    assert load_gguf(path).spec.rope_factors == (4.0,) * 8
    path = write(tmp_path / "b.gguf", llama__rope__scaling__factor=1.0)
    assert load_gguf(path).spec.rope_factors == ()


@pytest.mark.parametrize("name", ["token_embd.weight", "output_norm.weight", "blk.0.attn_k.weight"])
def test_a_tensor_that_is_missing(tmp_path: Path, name: str) -> None:
    tensors = MODEL.tensors()
    del tensors[name]
    path = write_gguf(tmp_path / "tiny.gguf", MODEL.metadata(), tensors, MODEL.kind_of)
    assert complaint(path) == f"tensor {name} is missing"


def test_a_tensor_of_the_wrong_shape(tmp_path: Path) -> None:
    tensors = MODEL.tensors()
    tensors["blk.0.ffn_up.weight"] = np.zeros((64, 32), dtype=np.float32)
    path = write_gguf(tmp_path / "tiny.gguf", MODEL.metadata(), tensors, MODEL.kind_of)
    assert complaint(path) == (
        "tensor blk.0.ffn_up.weight has shape [64, 32], the metadata calls for [32, 32]"
    )


@pytest.mark.parametrize("shape", [(), (1024,), (2, 32, 32)])
def test_an_embedding_that_is_no_matrix(tmp_path: Path, shape: tuple[int, ...]) -> None:
    tensors = MODEL.tensors()
    tensors["token_embd.weight"] = np.zeros(shape, dtype=np.float32)
    path = write_gguf(tmp_path / "a.gguf", MODEL.metadata(), tensors, lambda name: Type.F32)
    assert f"tensor token_embd.weight has shape {list(shape)}" in complaint(path)


def test_a_tensor_that_the_graph_would_leave_out(tmp_path: Path) -> None:
    tensors = MODEL.tensors() | {"blk.0.attn_q.bias": np.zeros(32, dtype=np.float32)}
    path = write_gguf(
        tmp_path / "tiny.gguf",
        MODEL.metadata(),
        tensors,
        lambda name: Type.F32 if name.endswith("bias") else MODEL.kind_of(name),
    )
    assert complaint(path).startswith("tensor blk.0.attn_q.bias is no part of a llama model")


def test_a_vector_in_blocks(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "tiny.gguf", MODEL.metadata(), MODEL.tensors(), lambda name: Type.Q8_0
    )
    assert complaint(path) == (
        "tensor output_norm.weight is a vector of type Q8_0; vectors are F32, F16, BF16"
    )


@pytest.mark.parametrize(
    ("number", "words"), [(39, "MXFP4"), (200, "number 200"), (16, "IQ2_XXS"), (27, "I64")]
)
def test_a_tensor_type_that_is_not_supported(tmp_path: Path, number: int, words: str) -> None:
    """Said before anything else of the tensor: the size its bytes then have means nothing."""
    path = write(tmp_path / "tiny.gguf")
    content = bytearray(path.read_bytes())
    name = b"blk.0.attn_v.weight"
    kind_at = content.index(name) + len(name) + 4 + 2 * 8
    assert content[kind_at] == Type.Q8_0
    content[kind_at] = number
    edited = tmp_path / "edited.gguf"
    edited.write_bytes(content)
    assert complaint(edited) == (
        f"tensor blk.0.attn_v.weight has type {words}, which is not supported; "
        f"supported types: {SUPPORTED}"
    )


@pytest.mark.parametrize("kind", LINEAR_TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_not_finite(tmp_path: Path, kind: Type, value: float) -> None:
    """8-bit activations would turn it into a number like any other, and the reply into noise."""
    path = TinyModel(linear=kind, shape=SMALL).write(tmp_path / "tiny.gguf")
    tensor = next(t for t in gguf.GGUFReader(path).tensors if t.name == "blk.0.attn_v.weight")
    bad = np.array([value], dtype={Type.F32: "<f4", Type.BF16: "<f4"}.get(kind, "<f2")).tobytes()
    content = bytearray(path.read_bytes())
    bad = bad[2:] if kind == Type.BF16 else bad
    content[tensor.data_offset : tensor.data_offset + len(bad)] = bad
    edited = tmp_path / "edited.gguf"
    edited.write_bytes(content)
    weights = load_gguf(edited).weights
    with pytest.raises(ModelError) as caught:
        weights.load("blk.0.attn_v.weight")
    assert caught.value.message == (
        "edited.gguf: tensor blk.0.attn_v.weight holds values that are not finite"
    )


@pytest.mark.parametrize("kind", [Type.Q4_1, Type.Q5_1], ids=lambda kind: kind.name)
def test_infinities_that_cancel_are_refused_without_a_warning(tmp_path: Path, kind: Type) -> None:
    path = TinyModel(linear=kind, shape=SMALL).write(tmp_path / "tiny.gguf")
    tensor = next(t for t in gguf.GGUFReader(path).tensors if t.name == "blk.0.attn_v.weight")
    content = bytearray(path.read_bytes())
    scale_and_minimum = np.array([np.inf, -np.inf], dtype="<f2").tobytes()
    content[tensor.data_offset : tensor.data_offset + 4] = scale_and_minimum
    edited = tmp_path / "edited.gguf"
    edited.write_bytes(content)
    with pytest.raises(ModelError, match="values that are not finite"):
        load_gguf(edited).weights.load("blk.0.attn_v.weight")


def test_a_name_that_the_model_has_not(tmp_path: Path) -> None:
    weights = load_gguf(write(tmp_path / "tiny.gguf")).weights
    with pytest.raises(ModelError, match=r"tiny\.gguf: tensor blk\.9\.x is missing"):
        weights.load("blk.9.x")
