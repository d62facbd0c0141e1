"""Counts that no model has are refused before anything is made for each of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.model_files import SmallModel, hf_name, write_folder, write_gguf
from surefoot.errors import ModelError
from surefoot.loading.folder import is_plain_name
from surefoot.loading.gguf.spec import MAX_HEAD_DIM, MAX_LAYERS
from surefoot.loading.open import load_model

GEMMA = SmallModel("gemma3", window=8)


def test_layers_of_a_gguf_file(tmp_path: Path) -> None:
    metadata = GEMMA.metadata() | {"gemma3.block_count": 2**32 - 1}
    path = write_gguf(tmp_path / "m.gguf", "gemma3", metadata, GEMMA.tensors())
    with pytest.raises(ModelError, match=rf"gemma3.block_count is 4294967295, above {MAX_LAYERS}"):
        load_model(path)


def test_layers_of_a_configuration(tmp_path: Path) -> None:
    tensors = {hf_name(name, "gemma3"): values for name, values in GEMMA.tensors().items()}
    folder = write_folder(tmp_path / "m", GEMMA.config() | {"num_hidden_layers": 2**63}, tensors)
    with pytest.raises(
        ModelError, match=rf"config.json is 9223372036854775808, above {MAX_LAYERS}"
    ):
        load_model(folder)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("model-00001-of-00002.safetensors", True),
        ("模型.onnx", True),
        ("", False),
        ("..", False),
        ("../x", False),
        ("/etc/passwd", False),
        ("a\0b", False),
        ("a\nb", False),
        ("x" * 200, True),
        ("x" * 201, False),
    ],
)
def test_names_that_files_may_have(name: str, plain: bool) -> None:
    assert (bool(name) and is_plain_name(name)) is plain


def test_an_index_with_a_name_that_no_file_has(tmp_path: Path) -> None:
    tensors = {hf_name(name, "gemma3"): values for name, values in GEMMA.tensors().items()}
    folder = write_folder(tmp_path / "m", GEMMA.config(), tensors)
    index = {"weight_map": dict.fromkeys(tensors, "9" * 400)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"index.json names 999.*, which is outside its folder"):
        load_model(folder)


def test_a_head_of_a_configuration(tmp_path: Path) -> None:
    """Llama 3's factors are made for each pair of a head's elements."""
    model = SmallModel("llama")
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    config = model.config() | {"head_dim": 2**40, "rope_scaling": rope}
    tensors = {hf_name(name, "llama"): values for name, values in model.tensors().items()}
    with pytest.raises(
        ModelError, match=rf"head_dim in config.json is 1099511627776, above {MAX_HEAD_DIM}"
    ):
        load_model(write_folder(tmp_path / "m", config, tensors))
