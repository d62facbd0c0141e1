"""A folder as a whole: what is counted, what its fingerprint follows, what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from support.model_files import SmallModel, hf_name, to_bfloat16, to_mlx, write_folder
from surefoot.errors import ModelError
from surefoot.loading.hf.model import load_hf_folder
from surefoot.loading.hf.tensors import FloatTensors
from surefoot.loading.mlx.weights import MlxTensors
from surefoot.loading.quantizing import QuantizingWeights

MODEL = SmallModel("qwen3", layers=1)
TENSORS = {hf_name(name, "qwen3"): to_bfloat16(values) for name, values in MODEL.tensors().items()}
NUM_VALUES = sum(values.size for values in TENSORS.values())


def write(folder: Path, **config: object) -> Path:
    return write_folder(folder, MODEL.config() | config, TENSORS)


def test_types_and_bytes_are_those_of_the_files(tmp_path: Path) -> None:
    loaded = load_hf_folder(write(tmp_path / "small"))
    assert loaded.name == "small"
    assert loaded.weight_bytes == 2 * NUM_VALUES
    assert set(loaded.tensor_types) == set(MODEL.tensors())
    assert set(loaded.tensor_types.values()) == {"BF16"}
    assert loaded.metadata == {}
    assert loaded.spec.vocab_size == 96
    assert isinstance(loaded.weights, QuantizingWeights)


def test_the_fingerprint_follows_config_weights_and_bits(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    weights = folder / "model.safetensors"
    os.utime(weights, ns=(1, 1))
    first = load_hf_folder(folder).fingerprint
    assert load_hf_folder(folder).fingerprint == first
    (folder / "tokenizer.json").write_text("{}")
    assert load_hf_folder(folder).fingerprint == first
    prints = {first, load_hf_folder(folder, "q4").fingerprint}
    os.utime(weights, ns=(2, 2))
    prints.add(load_hf_folder(folder).fingerprint)
    config = json.loads((folder / "config.json").read_text()) | {"rope_theta": 7.0}
    (folder / "config.json").write_text(json.dumps(config))
    prints.add(load_hf_folder(folder).fingerprint)
    assert len(prints) == 4


def test_another_programs_copy_of_the_weights_is_left_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    wanted = load_hf_folder(folder).fingerprint
    (folder / "consolidated.safetensors").write_bytes(b"not even read")
    assert load_hf_folder(folder).fingerprint == wanted
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    with pytest.raises(ModelError, match=r"a has 2 safetensors files and no model\.safetensors\.i"):
        load_hf_folder(folder)


def test_progress_counts_matrices_alone(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    loaded = load_hf_folder(
        write(tmp_path / "a"), "q4", lambda done, total: told.append((done, total))
    )
    for name in loaded.weights.names():
        loaded.weights.load(name)
    assert told == [(done, 8) for done in range(1, 9)]


@pytest.mark.parametrize(
    ("quantization", "kind"),
    [(None, FloatTensors), ({"bits": 4, "group_size": 32}, MlxTensors)],
)
def test_mlx_groups_are_never_quantized_again(
    quantization: dict[str, int] | None, kind: type, tmp_path: Path
) -> None:
    stored: dict[str, np.ndarray] = {}  # type: ignore[type-arg]
    for name, values in MODEL.tensors().items():
        given = hf_name(name, "qwen3")
        mlx = quantization is not None and values.ndim == 2
        stored |= to_mlx(given, values, 4, 32)[0] if mlx else {given: values}
    config = MODEL.config() | {"quantization": quantization}
    loaded = load_hf_folder(write_folder(tmp_path / "a", config, stored), "q4")
    assert isinstance(loaded.weights, MlxTensors) == (kind is MlxTensors)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quantization_config": {"quant_method": "awq"}}, "m is quantized by awq, which is not"),
        ({"quantization_config": {"load_in_8bit": True}}, "m is quantized by unknown, which is"),
        ({"quantization": True}, "m: quantization in config.json is True, not an object"),
        ({"quantization_config": "fp8"}, "m: quantization_config in config.json is 'fp8', not an"),
        ({"text_config": [1]}, "m: text_config in config.json is [1], not an object"),
        ({"hidden_size": 10**400}, "m: tensor token_embd.weight has shape [96, 64], the metadata"),
        (
            {"max_position_embeddings": 10**400},
            "m: max_position_embeddings is 18446744073709551616",
        ),
        ({"num_hidden_layers": 2}, "m: tensor blk.1.attn_norm.weight is missing"),
        ({"model_type": None}, "m: model_type 'None' is not supported; supported: gemma3, gemma3_"),
    ],
)
def test_what_is_refused(config: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_hf_folder(write(tmp_path / "m", **config))
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message


def test_a_config_that_is_missing_or_no_json(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    for text in ("{", "[" * 100_000, "7"):
        (folder / "config.json").write_text(text)
        with pytest.raises(ModelError, match=r"m: config\.json (cannot be read|is no JSON object)"):
            load_hf_folder(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"m: config\.json cannot be read"):
        load_hf_folder(folder)


@pytest.mark.parametrize(
    "header",
    [
        b'{"x": 5}',
        b'{"x": {"dtype": "F32", "shape": [1]}}',
        b'{"x": {"dtype": "F32", "shape": ["a"], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [1e400], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [4]}}',
        b"[" * 100_000,
        b"\xff\xff",
    ],
)
def test_a_damaged_header_of_weights_is_named(header: bytes, tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    content = len(header).to_bytes(8, "little") + header + bytes(8)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=r"^model\.safetensors"):
        load_hf_folder(folder)
