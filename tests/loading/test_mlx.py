"""MLX's affine groups, written as MLX lays them out and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from support.graph_runs import GraphRun
from support.model_files import SmallModel, hf_name, to_mlx, write_folder
from support.reference_decoder import reference_logits
from surefoot.errors import ModelError
from surefoot.loading.fidelity import dequantize, form_of, relative_error
from surefoot.loading.open import load_model

MODEL = SmallModel("qwen3", hidden=128, mlp=128)
IDS = list(range(3, 30))
Grouping = tuple[int, int]


def write(
    folder: Path,
    bits: int,
    group: int,
    single: dict[str, Grouping] | None = None,
    said: dict[str, object] | None = None,
) -> tuple[Path, dict[str, NDArray[np.float32]]]:
    """The folder, and the values its tensors stand for. `single`: bits and group of one tensor."""
    stored, meant = {}, {}
    entry: dict[str, object] = {"bits": bits, "group_size": group} | (said or {})
    for name, values in MODEL.tensors().items():
        hf = hf_name(name, "qwen3")
        if values.ndim == 1:
            stored[hf] = meant[name] = values
            continue
        own = (single or {}).get(name)
        parts, meant[name] = to_mlx(hf, values, *(own or (bits, group)))
        stored |= parts
        if own:
            entry[hf.removesuffix(".weight")] = {"bits": own[0], "group_size": own[1]}
    config = MODEL.config() | {"quantization": entry, "quantization_config": entry}
    return write_folder(folder, config, stored), meant


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_values_are_those_of_the_file(bits: int, group: int, tmp_path: Path) -> None:
    folder, meant = write(tmp_path / "m", bits, group)
    weights = load_model(folder).weights
    for name, values in meant.items():
        weight = weights.load(name)
        assert relative_error(weights.values(name), values) == 0
        assert relative_error(dequantize(weight), values) < 1e-6
        if values.ndim == 2:
            assert form_of(weight) == f"{bits} bits, blocks of {group}, offsets"
            assert weights.type_of(name) == f"MLX {bits} bits, groups of {group}"


@pytest.mark.parametrize(("bits", "group"), [(4, 64), (8, 32), (4, 128)])
def test_logits(bits: int, group: int, tmp_path: Path) -> None:
    folder, meant = write(tmp_path / "m", bits, group, {"blk.0.ffn_up.weight": (8, 64)})
    loaded = load_model(folder)
    assert loaded.tensor_types["blk.0.ffn_up.weight"] == "MLX 8 bits, groups of 64"
    found = GraphRun(loaded.spec, loaded.weights).feed(IDS)
    wanted = reference_logits(MODEL.family(), meant, IDS)
    np.testing.assert_allclose(found, wanted, atol=1e-3)


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({"bits": 3}, "to 3 bits in groups of 64 is not supported; supported: 4 and 8 bits"),
        ({"group_size": 16}, "groups of 16"),
        ({"mode": "mxfp4"}, "mode 'mxfp4' is not supported"),
        ({"bits": 8}, "has words of shape"),
        ({"quant_method": "awq"}, "m is quantized by awq, which is not supported"),
    ],
)
def test_what_is_not_read_is_refused(
    quantization: dict[str, object], message: str, tmp_path: Path
) -> None:
    folder, _ = write(tmp_path / "m", 4, 64, said=quantization)
    with pytest.raises(ModelError, match=message):
        load_model(folder)


def test_a_matrix_without_its_biases_is_refused(tmp_path: Path) -> None:
    parts, _ = to_mlx("model.embed_tokens.weight", MODEL.tensors()["token_embd.weight"], 4, 32)
    del parts["model.embed_tokens.biases"]
    config = MODEL.config() | {"quantization": {"bits": 4, "group_size": 32}}
    with pytest.raises(
        ModelError, match="m: tensor token_embd has scales but not words and biases"
    ):
        load_model(write_folder(tmp_path / "m", config, parts))
