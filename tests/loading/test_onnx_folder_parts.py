"""Which stored tensor is which weight, and which of its rows: names and integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.onnx_folders import BuilderModel
from surefoot.errors import ModelError
from surefoot.graph.spec import DenseWeight, QuantizedWeight
from surefoot.loading.onnx.file import read_onnx
from surefoot.loading.onnx.graph import Matrix, OnnxDecoder, read_decoder
from surefoot.loading.onnx.model import load_onnx_folder
from surefoot.loading.onnx.weights import Part, parts_of

QUERY, KV = 4 * 16, 2 * 16
"""Rows of q, and of k and of v, of `BuilderModel`."""


def decoder_of(folder: Path, num_layers: int = 2) -> OnnxDecoder:
    return read_decoder(read_onnx(folder / "model.onnx"), num_layers)


def test_one_matrix_for_q_k_and_v_is_cut_into_its_rows(tmp_path: Path) -> None:
    folder = BuilderModel().write(tmp_path / "packed")
    parts = parts_of(decoder_of(folder), load_onnx_folder(folder).spec)
    cuts = {letter: parts[f"blk.1.attn_{letter}.weight"] for letter in "qkv"}
    assert len({part.source for part in cuts.values()}) == 1
    assert {letter: (part.start, part.stop) for letter, part in cuts.items()} == {
        "q": (0, QUERY),
        "k": (QUERY, QUERY + KV),
        "v": (QUERY + KV, QUERY + 2 * KV),
    }


def test_three_matrices_are_taken_whole(tmp_path: Path) -> None:
    folder = BuilderModel(packed_qkv=False).write(tmp_path / "apart")
    parts = parts_of(decoder_of(folder), load_onnx_folder(folder).spec)
    cuts = [parts[f"blk.0.attn_{letter}.weight"] for letter in "qkv"]
    assert [(part.start, part.stop) for part in cuts] == [(0, None)] * 3
    assert len({part.source for part in cuts}) == 3


def test_each_weight_of_a_layer_is_another_tensor(tmp_path: Path) -> None:
    folder = BuilderModel(packed_qkv=False).write(tmp_path / "m")
    parts = parts_of(decoder_of(folder), load_onnx_folder(folder).spec)
    assert len(parts) == 3 + 2 * 9
    assert len({part.source for part in parts.values()}) == len(parts)
    down = parts["blk.1.ffn_down.weight"].source
    assert isinstance(down, Matrix)
    assert (down.bits, down.block, "layers.1" in down.data) == (4, 32, True)


def test_a_tied_model_has_no_output_matrix_of_its_own(tmp_path: Path) -> None:
    folder = BuilderModel(tied=True, head_bits=4).write(tmp_path / "tied")
    loaded = load_onnx_folder(folder)
    assert loaded.spec.tied_embedding
    parts = parts_of(decoder_of(folder), loaded.spec)
    assert "output.weight" not in parts
    assert parts["output_norm.weight"] == Part(decoder_of(folder).final_norm)


def test_weights_come_in_the_form_they_are_stored_in(tmp_path: Path) -> None:
    loaded = load_onnx_folder(BuilderModel(float_mlp=True).write(tmp_path / "floats"))
    up, query = (
        loaded.weights.load("blk.0.ffn_up.weight"),
        loaded.weights.load("blk.0.attn_q.weight"),
    )
    assert isinstance(up, DenseWeight)
    assert up.values.shape == (96, 64)
    assert up.values.dtype == np.float32
    assert isinstance(query, QuantizedWeight)
    assert (query.shape, query.bits, query.block) == ((QUERY, 64), 4, 32)


@pytest.mark.parametrize(
    ("num_layers", "message"),
    [(1, "more than the 1 layers"), (3, "there are 2 layers, genai_config.json: 3")],
)
def test_the_graph_has_as_many_layers_as_were_told(
    num_layers: int, message: str, tmp_path: Path
) -> None:
    folder = BuilderModel().write(tmp_path / "m")
    with pytest.raises(ModelError, match=message):
        decoder_of(folder, num_layers)
