"""Folders of onnxruntime-genai's builder: surefoot's graph of their weights computes what ONNX
Runtime computes of the folder's own, and what does not fit is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from support.graph_runs import GraphRun
from support.onnx_folders import BuilderModel
from surefoot.errors import ModelError
from surefoot.loading.fidelity import dequantize, form_of, relative_error
from surefoot.loading.hf.config import llama3_factors
from surefoot.loading.onnx.file import read_onnx
from surefoot.loading.onnx.rotation import base_and_factors, measured_frequencies
from surefoot.loading.open import load_model

IDS = [3, 17, 95, 0, 41, 41, 8, 63, 17, 95, 0, 2]
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

FORMS: dict[str, dict[str, Any]] = {
    "4 bits, a head of 8": {},
    "tied, 4 bits": {"tied": True, "head_bits": 4},
    "tied, packed zero points": {"tied": True, "head_bits": 4, "zero_points": "packed"},
    "8 bits": {"bits": 8, "tied": True},
    "packed zero points": {"zero_points": "packed", "block": 16},
    "packed zero points of 8 bits": {"zero_points": "packed", "bits": 8},
    "float zero points": {"zero_points": "float", "head_bits": 4},
    "float matrices": {"float_mlp": True},
    "qwen2": {"kind": "qwen2", "bias": True, "theta": 1000000.0},
    "qwen2, three matrices": {"kind": "qwen2", "bias": True, "packed_qkv": False},
    "qwen3": {"kind": "qwen3", "head_norms": True},
    "qwen3, three matrices": {"kind": "qwen3", "packed_qkv": False, "head_norms": True},
    "mistral's window": {"kind": "mistral", "attention": {"local_window_size": 4}},
    "another scale": {"attention": {"scale": 0.5}},
    "interleaved rotation": {"attention": {"rotary_interleaved": 1}},
    "scaled rotation": {"theta": 500000.0, "factors": llama3_factors(LLAMA3, 500000.0, 16)},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_logits_are_those_of_the_folders_own_graph(form: dict[str, Any], tmp_path: Path) -> None:
    model = BuilderModel(**form)
    loaded = load_model(model.write(tmp_path / "m"))
    wanted = model.logits(IDS)
    found = GraphRun(loaded.spec, loaded.weights).feed(IDS)
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    assert np.abs(wanted).max() > 1


@pytest.mark.parametrize("zero_points", ["none", "packed", "float"])
def test_weights_are_exact(zero_points: str, tmp_path: Path) -> None:
    loaded = load_model(BuilderModel(zero_points=zero_points).write(tmp_path / "m"))
    for name in loaded.weights.names():
        weight = loaded.weights.load(name)
        assert relative_error(dequantize(weight), loaded.weights.values(name)) < 3e-7, name
    offsets = "" if zero_points == "none" else ", offsets"
    assert form_of(loaded.weights.load("blk.0.attn_q.weight")) == f"4 bits, blocks of 32{offsets}"
    assert form_of(loaded.weights.load("token_embd.weight")) == "float32"


def test_floats_are_quantized_only_when_asked(tmp_path: Path) -> None:
    folder = BuilderModel().write(tmp_path / "m")
    plain, asked = load_model(folder), load_model(folder, "q8")
    assert form_of(asked.weights.load("token_embd.weight")) == "8 bits, blocks of 32"
    assert form_of(asked.weights.load("blk.0.attn_q.weight")) == "4 bits, blocks of 32"
    assert plain.fingerprint != asked.fingerprint


def test_tensors_within_the_file_and_beside_it_are_the_same(tmp_path: Path) -> None:
    model = BuilderModel(tied=True, head_bits=4)
    beside = load_model(model.write(tmp_path / "beside"))
    within = load_model(model.write(tmp_path / "within", external=False))
    assert beside.spec == within.spec
    for name in beside.weights.names():
        one, other = (dequantize(loaded.weights.load(name)) for loaded in (beside, within))
        assert np.array_equal(one, other)
    assert beside.weight_bytes == within.weight_bytes
    stored = {n: v for n, v in model.tensors.items() if n not in ("flat", "cos_cache", "sin_cache")}
    assert beside.weight_bytes == sum(values.nbytes for values in stored.values())


def test_what_the_folder_says_of_text_and_shape(tmp_path: Path) -> None:
    folder = BuilderModel(tied=True, head_bits=4).write(tmp_path / "m")
    assert load_model(folder).text is None
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    text = load_model(folder).text
    assert text is not None
    assert text.end_ids == (2, 7)
    assert text.chat_template == "{{ messages }}"
    spec = load_model(folder).spec
    sizes = (spec.num_layers, spec.hidden_size, spec.intermediate_size, spec.vocab_size)
    assert sizes == (2, 64, 96, 96)
    assert (spec.rope_theta, spec.rope_factors, spec.context_length) == (10000.0, (), 128)
    assert spec.tied_embedding


@pytest.mark.parametrize("theta", [10000.0, 100000.0, 500000.0, 1000000.0, 10000000.0])
@pytest.mark.parametrize("pairs", [4, 32, 64])
@pytest.mark.parametrize("positions", [2, 100, 4096])
def test_the_base_is_read_off_float32_tables(theta: float, pairs: int, positions: int) -> None:
    frequencies = (theta ** -(np.arange(pairs) / pairs)).astype(np.float32)
    angles = np.outer(np.arange(positions, dtype=np.float32), frequencies)
    cos, sin = np.cos(angles).astype(np.float64), np.sin(angles).astype(np.float64)
    assert base_and_factors(measured_frequencies(cos, sin)) == (theta, ())


def change(model: BuilderModel, name: str, **changes: Any) -> None:
    """Replace fields of the node of that name; `attributes` are set."""
    (node,) = (node for node in model.nodes if node.name == name)
    for key, value in changes.pop("attributes", {}).items():
        kept = [entry for entry in node.attribute if entry.name != key]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(key, value)])
    for index, text in changes.pop("inputs", {}).items():
        while len(node.input) <= index:
            node.input.append("")
        node.input[index] = text
    for key, value in changes.items():
        setattr(node, key, value)


ATTENTION = "/model/layers.1/attn/GroupQueryAttention"
DOWN = "/model/layers.0/mlp/down_proj/MatMul_Q4"
UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "name /model/layers.0/mlp/act_fn/Sigmoid": ({"op_type": "Tanh"}, "is Tanh where Sigmoid was"),
    f"name {DOWN}": ({"op_type": "MatMulBnb4"}, "is MatMulBnb4 where a linear layer was expected"),
    f"order {DOWN}": ({"inputs": {4: "total"}}, "has its inputs reordered"),
    f"bias {DOWN}": ({"inputs": {5: "total"}}, "has a bias"),
    f"bits {DOWN}": ({"attributes": {"bits": 2}}, "has 2 bits in blocks of 32; 4 and 8 are known"),
    f"softcap {ATTENTION}": ({"attributes": {"softcap": 30.0}}, "softcap"),
    f"heads {ATTENTION}": ({"attributes": {"num_heads": 8}}, "num_heads of .* is not 4"),
    f"rotation {ATTENTION}": ({"attributes": {"do_rotary": 0}}, "rotates by another operator"),
    f"scale {ATTENTION}": ({"attributes": {"scale": 0.3}}, "its layers attend in different ways"),
    f"past {ATTENTION}": ({"inputs": {3: "", 4: ""}}, "has no past keys and values"),
    f"mask {ATTENTION}": ({"inputs": {10: "total"}}, r"inputs that are not known: \['total'\]"),
    "norm /model/layers.1/input_layernorm/SkipLayerNorm": (
        {"attributes": {"epsilon": 0.5}},
        "its norms have different epsilons",
    ),
    "total /model/layers.1/input_layernorm/SkipLayerNorm": (
        {"inputs": {0: "/model/embed_tokens/output_0"}},
        "does not hand on /model/embed_tokens/output_0",
    ),
    "scaled /model/embed_tokens/Gather": ({"op_type": "Mul"}, "is Mul where the embedding"),
}


def test_a_split_in_another_order_is_refused(tmp_path: Path) -> None:
    model = BuilderModel(kind="qwen3", head_norms=True)
    (split, _) = (node for node in model.nodes if node.op_type == "Split")
    split.output[1], split.output[2] = split.output[2], split.output[1]
    with pytest.raises(ModelError, match=r"layers.0/attn/qkv_proj/Split does not split q, k and v"):
        load_model(model.write(tmp_path / "m"))


@pytest.mark.parametrize(("where", "case"), UNFIT.items(), ids=UNFIT.keys())
def test_a_graph_that_is_another_model_is_refused(
    where: str, case: tuple[dict[str, Any], str], tmp_path: Path
) -> None:
    changes, message = case
    model = BuilderModel()
    change(model, where.split(" ")[1], **changes)
    with pytest.raises(ModelError, match=rf"^model\.onnx.*{message}"):
        load_model(model.write(tmp_path / "m"))


def config_edit(folder: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    path = folder / "genai_config.json"
    content = json.loads(path.read_text())
    edit(content["model"])
    path.write_text(json.dumps(content))
    return folder


CONFIGS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "kind": (
        lambda m: m.update(type="phi3"),
        r"m holds an onnxruntime-genai graph \(phi3\), which is not supported; supported: llama",
    ),
    "layers": (
        lambda m: m["decoder"].update(num_hidden_layers=1),
        "there are more than the 1 layers of genai_config.json",
    ),
    "more layers": (
        lambda m: m["decoder"].update(num_hidden_layers=3),
        "there are 2 layers, genai_config.json: 3",
    ),
    "heads": (
        lambda m: m["decoder"].update(num_attention_heads="four"),
        "m: num_attention_heads in genai_config.json is 'four', not from 1 to",
    ),
    "vocabulary": (
        lambda m: m.update(vocab_size=97),
        r"tensor token_embd.weight has shape \[96, 64\], the metadata calls for \[97, 64\]",
    ),
    "partial rotation": (
        lambda m: m["decoder"].update(head_size=32),
        r"cos_cache has shape \[128, 8\], not half of 32 columns",
    ),
    "file": (
        lambda m: m["decoder"].update(filename="other.onnx"),
        "m: other.onnx is missing; genai_config.json calls for it",
    ),
    "file elsewhere": (
        lambda m: m["decoder"].update(filename="../model.onnx"),
        "m: genai_config.json names model.onnx outside its folder",
    ),
}


@pytest.mark.parametrize("case", CONFIGS.values(), ids=CONFIGS.keys())
def test_a_configuration_that_does_not_fit_is_refused(
    case: tuple[Callable[[dict[str, Any]], None], str], tmp_path: Path
) -> None:
    edit, message = case
    with pytest.raises(ModelError, match=message):
        load_model(config_edit(BuilderModel().write(tmp_path / "m"), edit))


def test_tables_that_are_no_rotation_are_refused(tmp_path: Path) -> None:
    model = BuilderModel()
    model.tensors["cos_cache"] = model.tensors["cos_cache"] * np.float32(1.1)
    with pytest.raises(ModelError, match="cos_cache and sin_cache are no plain rotation"):
        load_model(model.write(tmp_path / "m"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("zero_points", ["none", "float"])
def test_values_that_are_not_finite_are_refused(
    tmp_path: Path, value: float, zero_points: str
) -> None:
    model = BuilderModel(zero_points=zero_points)
    model.tensors["lm_head.MatMul.weight_scales"][3, 1] = value
    if zero_points == "float":  # no offset there: infinity times nothing
        model.tensors["lm_head.MatMul.weight_zero_points"][3, 1] = 2 ** (model.head_bits - 1)
    loaded = load_model(model.write(tmp_path / "m"))
    with pytest.raises(ModelError, match=r"model.onnx: output.weight holds values that are not"):
        loaded.weights.load("output.weight")


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    folder = BuilderModel(layers=1).write(tmp_path / "m", external=False)
    path = folder / "model.onnx"
    whole = path.read_bytes()
    for kept in [*range(40), *range(40, len(whole) - 40, 997)]:
        path.write_bytes(whole[:kept])
        with pytest.raises(ModelError, match=r"model\.onnx (is no|cannot be read)"):
            read_onnx(path)


def test_data_cut_short_or_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = BuilderModel().write(tmp_path / "m")
    data = folder / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"model.onnx.data: tensor .* it is truncated"):
        load_model(folder)
    data.unlink()
    with pytest.raises(ModelError, match=r"model.onnx.data cannot be read"):
        load_model(folder)
    graph = folder / "model.onnx"
    outside = graph.read_bytes().replace(b"model.onnx.data", b"../odel.onnx.da")
    graph.write_bytes(outside)
    with pytest.raises(ModelError, match=r"lies in '../odel.onnx.da', outside its folder"):
        load_model(folder)
