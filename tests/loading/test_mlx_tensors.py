"""MLX's words, scales and biases, element by element, and what its settings may say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surefoot.errors import ModelError
from surefoot.graph.spec import DenseWeight, QuantizedWeight
from surefoot.loading.hf.safetensors import StoredTensor
from surefoot.loading.mlx.weights import Grouping, MlxTensors, read_groupings

NAME = "blk.0.attn_q"


def matrix(
    bits: int, levels: list[int], scales: list[float], biases: list[float]
) -> dict[str, Any]:
    """One row of elements as MLX packs it: the first in a word's lowest bits."""
    per_word = 32 // bits
    words = [
        sum(level << (bits * place) for place, level in enumerate(levels[at : at + per_word]))
        for at in range(0, len(levels), per_word)
    ]
    return {
        f"{NAME}.weight": StoredTensor("U32", np.array([words], dtype="<u4")),
        f"{NAME}.scales": StoredTensor("F16", np.array([scales], dtype="<f2")),
        f"{NAME}.biases": StoredTensor("F16", np.array([biases], dtype="<f2")),
    }


def tensors(stored: dict[str, Any], group: int, bits: int, **single: Grouping) -> MlxTensors:
    return MlxTensors("m", stored, Grouping(group, bits), single, norms_from_one=False)


def test_four_bits_lie_as_the_graph_wants_them() -> None:
    levels = [*range(16), *range(15, -1, -1)]
    found = tensors(matrix(4, levels, [0.5], [-3.0]), 32, 4)
    weight = found.load(f"{NAME}.weight")
    assert isinstance(weight, QuantizedWeight)
    assert (weight.bits, weight.block, weight.shape) == (4, 32, (1, 32))
    # Element 2j in the low half of byte j: 0x10 holds 0 and 1, 0xEF holds 15 and 14.
    assert weight.packed.tolist() == [
        [[0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE, 0xEF, 0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23,
          0x01]]
    ]  # fmt: skip
    assert weight.scales.tolist() == [[0.5]]
    assert weight.offsets is not None
    assert weight.offsets.tolist() == [[-3.0 + 8 * 0.5]]
    assert found.values(f"{NAME}.weight").tolist() == [[0.5 * level - 3 for level in levels]]
    assert found.type_of(f"{NAME}.weight") == "MLX 4 bits, groups of 32"
    assert found.shapes() == {f"{NAME}.weight": (1, 32)}


def test_eight_bits_in_two_groups() -> None:
    levels = [(37 * place) % 256 for place in range(64)]
    found = tensors(matrix(8, levels, [0.25, 2.0], [1.0, -4.0]), 32, 8)
    weight = found.load(f"{NAME}.weight")
    assert isinstance(weight, QuantizedWeight)
    assert weight.packed.tolist() == [[levels[:32], levels[32:]]]
    assert weight.offsets is not None
    assert weight.offsets.tolist() == [[1.0 + 128 * 0.25, -4.0 + 128 * 2.0]]
    wanted = [0.25 * q + 1 for q in levels[:32]] + [2.0 * q - 4 for q in levels[32:]]
    assert found.values(f"{NAME}.weight").tolist() == [wanted]


def test_tensors_without_scales_are_plain() -> None:
    norm = StoredTensor("BF16", np.array([0x3F80], dtype="<u2"))
    stored = matrix(4, [0] * 32, [1.0], [0.0]) | {"output_norm.weight": norm}
    found = MlxTensors("m", stored, Grouping(32, 4), {}, norms_from_one=True)
    assert list(found.names()) == [f"{NAME}.weight", "output_norm.weight"]
    assert found.type_of("output_norm.weight") == "BF16"
    assert found.values("output_norm.weight").tolist() == [2.0]
    weight = found.load("output_norm.weight")
    assert isinstance(weight, DenseWeight)
    assert weight.values.tolist() == [2.0]


def test_one_layer_in_other_bits() -> None:
    stored = matrix(8, [1] * 64, [1.0], [0.0])
    found = tensors(stored, 32, 4, **{f"{NAME}.weight": Grouping(64, 8)})
    assert found.shapes() == {f"{NAME}.weight": (1, 64)}
    with pytest.raises(ModelError) as caught:
        tensors(stored, 32, 4)
    assert caught.value.message == (
        f"m: tensor {NAME}.weight has words of shape [1, 16] for scales of [1, 1]: "
        "not 4 bits in groups of 32"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"weight": StoredTensor("F32", np.zeros((1, 4), dtype="<f4"))},
        {"weight": StoredTensor("U32", np.zeros(4, dtype="<u4"))},
        {"biases": StoredTensor("F16", np.zeros((1, 2), dtype="<f2"))},
        {"scales": StoredTensor("U32", np.zeros((1, 1), dtype="<u4"))},
        {
            "scales": StoredTensor("F16", np.zeros(1, dtype="<f2")),
            "biases": StoredTensor("F16", np.zeros(1, dtype="<f2")),
        },
    ],
    ids=[
        "float words",
        "a vector of words",
        "other biases",
        "integer scales",
        "a vector of scales",
    ],
)
def test_what_is_no_matrix_of_theirs(change: dict[str, StoredTensor]) -> None:
    stored = matrix(4, [0] * 32, [1.0], [0.0])
    stored |= {f"{NAME}.{kind}": tensor for kind, tensor in change.items()}
    with pytest.raises(ModelError) as caught:
        tensors(stored, 32, 4)
    assert caught.value.message == f"m: tensor {NAME}.weight is no MLX matrix"


@pytest.mark.parametrize("missing", ["weight", "biases"])
def test_scales_alone(missing: str) -> None:
    stored = matrix(4, [0] * 32, [1.0], [0.0])
    del stored[f"{NAME}.{missing}"]
    with pytest.raises(ModelError, match=f"m: tensor {NAME} has scales but not words and biases"):
        tensors(stored, 32, 4)


@pytest.mark.parametrize("kind", ["scales", "biases"])
def test_values_that_are_not_finite(kind: str) -> None:
    stored = matrix(4, [0] * 32, [1.0], [0.0])
    stored[f"{NAME}.{kind}"] = StoredTensor("F16", np.array([[np.inf]], dtype="<f2"))
    with pytest.raises(ModelError, match=f"m: tensor {NAME}.weight holds values that are not"):
        tensors(stored, 32, 4).load(f"{NAME}.weight")


def test_infinities_that_cancel_are_refused_without_a_warning() -> None:
    stored = matrix(4, [0] * 32, [1.0], [0.0])
    for kind, value in (("scales", np.inf), ("biases", -np.inf)):
        stored[f"{NAME}.{kind}"] = StoredTensor("F16", np.array([[value]], dtype="<f2"))
    with pytest.raises(ModelError, match=f"m: tensor {NAME}.weight holds values that are not"):
        tensors(stored, 32, 4).load(f"{NAME}.weight")


def test_settings_name_the_usual_grouping_and_single_layers() -> None:
    settings = {
        "group_size": 64,
        "bits": 4,
        "mode": "affine",
        "model.embed_tokens": {"group_size": 32, "bits": 8},
        "model.layers.3.mlp.down_proj": {"bits": 8},
        "model.layers.4.mlp.down_proj": False,
        "vision_tower.patch": {"bits": 8, "group_size": 64},
    }
    assert read_groupings("m", settings, "qwen2") == (
        Grouping(64, 4),
        {"token_embd.weight": Grouping(32, 8), "blk.3.ffn_down.weight": Grouping(64, 8)},
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bits": 3}, "to 3 bits in groups of 64 is not supported"),
        ({"bits": None}, "to None bits in groups of 64"),
        ({"bits": "4"}, "to 4 bits in groups of 64 is not supported"),
        ({"group_size": 16}, "to 4 bits in groups of 16"),
        ({"mode": "mxfp4"}, "MLX quantization of mode 'mxfp4' is not supported"),
        ({"lm_head": {"bits": 6}}, "to 6 bits in groups of 64"),
    ],
)
def test_settings_that_are_not_known(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_groupings("m", {"group_size": 64, "bits": 4} | settings, "qwen2")
    assert caught.value.message.startswith("m: MLX quantization")
    assert message in caught.value.message
