"""ONNX folders that somebody meddled with: each is refused in one line, none is read as another
model, and no change of a file goes unnoticed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from support.onnx_folders import BuilderModel
from surefoot.errors import ModelError
from surefoot.loading.open import load_model

ATTENTION = "/model/layers.1/attn/GroupQueryAttention"
DOWN = "/model/layers.0/mlp/down_proj/MatMul_Q4"
FIRST_NORM = "/model/layers.0/input_layernorm/LayerNorm"

Edit = Callable[[onnx.ModelProto], None]


def edited(folder: Path, edit: Edit, **form: Any) -> Path:
    """A folder whose graph was changed after it was written."""
    BuilderModel(**form).write(folder)
    path = folder / "model.onnx"
    proto = onnx.load(str(path), load_external_data=False)
    edit(proto)
    path.write_bytes(proto.SerializeToString())
    return folder


def node(proto: onnx.ModelProto, name: str) -> onnx.NodeProto:
    (found,) = (each for each in proto.graph.node if each.name == name)
    return found


def attribute(name: str, key: str, value: object) -> Edit:
    def edit(proto: onnx.ModelProto) -> None:
        target = node(proto, name)
        kept = [each for each in target.attribute if each.name != key]
        del target.attribute[:]
        target.attribute.extend([*kept, helper.make_attribute(key, value)])

    return edit


def fed(name: str, index: int, text: str) -> Edit:
    def edit(proto: onnx.ModelProto) -> None:
        node(proto, name).input[index] = text

    return edit


def again(field: str) -> Edit:
    def edit(proto: onnx.ModelProto) -> None:
        entries = getattr(proto.graph, field)
        entries.append(entries[0])

    return edit


def other_domain(proto: onnx.ModelProto) -> None:
    node(proto, DOWN).domain = "org.example"


def own_function(proto: onnx.ModelProto) -> None:
    body = helper.make_node("Relu", ["x"], ["y"])
    opset = [helper.make_opsetid("", 18)]
    proto.functions.append(helper.make_function("", "Sigmoid", ["x"], ["y"], [body], opset))


def no_outputs(proto: onnx.ModelProto) -> None:
    del proto.graph.output[:]


def data_type(name: str, kind: int) -> Edit:
    def edit(proto: onnx.ModelProto) -> None:
        (tensor,) = (each for each in proto.graph.initializer if each.name == name)
        tensor.data_type = kind

    return edit


def dims(*shape: int) -> Edit:
    def edit(proto: onnx.ModelProto) -> None:
        (tensor,) = (each for each in proto.graph.initializer if each.name == "cos_cache")
        del tensor.dims[:]
        tensor.dims.extend(shape)

    return edit


GRAPHS: dict[str, tuple[Edit, str]] = {
    "stored twice": (again("initializer"), "two tensors are stored as"),
    "made twice": (again("node"), "is made more than once"),
    "another domain": (other_domain, "MatMulNBits of org.example"),
    "own operations": (own_function, "it defines operations of its own"),
    "no answer": (no_outputs, "does not answer with logits"),
    "epsilon text": (attribute(FIRST_NORM, "epsilon", "x"), "epsilon of .* is 'x', not a number"),
    "epsilon inf": (attribute(FIRST_NORM, "epsilon", float("inf")), "is inf, not a number"),
    "epsilon below 0": (attribute(FIRST_NORM, "epsilon", -1e-5), "has epsilon -1e-05"),
    "axis": (attribute(FIRST_NORM, "axis", 1), "is a norm along another axis"),
    "scale text": (attribute(ATTENTION, "scale", "x"), "scale of .* is 'x', not a number"),
    "scale below 0": (attribute(ATTENTION, "scale", -1.0), "has scale -1"),
    "scale vast": (attribute(ATTENTION, "scale", 1e38), r"has scale 1e\+38"),
    "window float": (attribute(ATTENTION, "local_window_size", 4.5), "is 4.5, not an integer"),
    "interleaved": (attribute(ATTENTION, "rotary_interleaved", 3), "rotary_interleaved 3"),
    "norm epsilon": (attribute(ATTENTION, "qk_norm_epsilon", float("nan")), "is nan, not a number"),
    "another's past": (
        fed(ATTENTION, 3, "past_key_values.0.key"),
        "no past keys and values of its",
    ),
    "ids as past": (fed(ATTENTION, 4, "input_ids"), "no past keys and values of its own"),
    "stored lengths": (fed(ATTENTION, 5, "cos_cache"), "over a stored number of positions"),
    "gathered by another": (fed("/model/embed_tokens/Gather", 1, "total"), "graph's input_ids"),
    "gathered across": (attribute("/model/embed_tokens/Gather", "axis", 1), "graph's input_ids"),
    "inputs": (attribute(DOWN, "K", 64), "is said to have 64 inputs, 64 outputs"),
    "block": (attribute(DOWN, "block_size", 24), "bits in blocks of 24"),
    "no dimension": (dims(0, 1 << 62), r"cos_cache has shape \[0, "),
    "many dimensions": (dims(*[1] * 65), r"cos_cache has shape \[1, 1"),
    "integer tables": (data_type("cos_cache", onnx.TensorProto.INT64), "cos_cache"),
}


@pytest.mark.parametrize(("edit", "message"), GRAPHS.values(), ids=GRAPHS.keys())
def test_a_graph_that_was_meddled_with(edit: Edit, message: str, tmp_path: Path) -> None:
    folder = edited(tmp_path / "m", edit)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_a_graph_that_runs_in_a_circle_ends(tmp_path: Path) -> None:
    model = BuilderModel()
    (norm,) = (each for each in model.nodes if each.name == FIRST_NORM)
    last = next(each for each in reversed(model.nodes) if each.op_type.startswith("Skip"))
    norm.op_type, norm.domain = last.op_type, last.domain
    del norm.input[:], norm.output[1:]
    norm.input.extend(last.input)
    folder = model.write(tmp_path / "m")
    path = folder / "genai_config.json"
    content = json.loads(path.read_text())
    content["model"]["decoder"]["num_hidden_layers"] = 1_000_000_000
    path.write_text(json.dumps(content))
    with pytest.raises(ModelError, match="operations make no 1000000000 layers"):
        load_model(folder)


CONFIGS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a list as type": (lambda m: m.update(type=["llama"]), "onnxruntime-genai graph"),
    "a long name": (lambda m: m["decoder"].update(filename="a" * 5000), "outside its folder"),
    "a number as name": (lambda m: m["decoder"].update(filename=3), "outside its folder"),
    "a vast head": (lambda m: m["decoder"].update(head_size=10**400), "head_size in .* is 1000"),
}


@pytest.mark.parametrize(("edit", "message"), CONFIGS.values(), ids=CONFIGS.keys())
def test_a_configuration_that_was_meddled_with(
    edit: Callable[[dict[str, Any]], None], message: str, tmp_path: Path
) -> None:
    folder = BuilderModel().write(tmp_path / "m")
    path = folder / "genai_config.json"
    content = json.loads(path.read_text())
    edit(content["model"])
    path.write_text(json.dumps(content))
    with pytest.raises(ModelError, match=message) as caught:
        load_model(folder)
    assert len(str(caught.value)) < 400


def test_heads_that_cannot_share_are_refused(tmp_path: Path) -> None:
    folder = BuilderModel(kv_heads=3, packed_qkv=False).write(tmp_path / "m")
    with pytest.raises(ModelError, match="m has 4 heads for 3 of keys and values"):
        load_model(folder)


def test_rows_of_q_k_and_v_that_are_left_over_are_refused(tmp_path: Path) -> None:
    """Fewer heads of keys are told of, by the graph and by the configuration, than are stored."""

    def fewer(proto: onnx.ModelProto) -> None:
        for each in proto.graph.node:
            if each.op_type == "GroupQueryAttention":
                attribute(each.name, "kv_num_heads", 1)(proto)

    folder = edited(tmp_path / "m", fewer)
    path = folder / "genai_config.json"
    content = json.loads(path.read_text())
    content["model"]["decoder"]["num_key_value_heads"] = 1
    path.write_text(json.dumps(content))
    with pytest.raises(ModelError, match=r"has 128 rows; q, k and v have \[64, 16, 16\]"):
        load_model(folder)


def test_tables_with_one_value_that_is_none_are_refused(tmp_path: Path) -> None:
    model = BuilderModel()
    model.tensors["sin_cache"][1:, 3] = np.nan
    with pytest.raises(ModelError, match="cos_cache or sin_cache holds values that are not finite"):
        load_model(model.write(tmp_path / "m"))


def test_the_fingerprint_follows_the_data_whatever_it_is_called(tmp_path: Path) -> None:
    folder = BuilderModel().write(tmp_path / "m")
    proto = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    for each in proto.graph.initializer:
        for entry in each.external_data:
            if entry.key == "location":
                entry.value = "weights.bin"
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    data = folder / "weights.bin"
    (folder / "model.onnx.data").rename(data)
    before = load_model(folder).fingerprint
    assert load_model(folder).fingerprint == before
    stat = data.stat()
    os.utime(data, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert load_model(folder).fingerprint != before


def test_a_link_that_leads_nowhere_beside_the_graph_is_no_matter(tmp_path: Path) -> None:
    folder = BuilderModel().write(tmp_path / "m")
    (folder / "model.onnx.old").symlink_to("gone")
    assert load_model(folder).spec.num_layers == 2


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    folder = BuilderModel().write(tmp_path / "m")
    (folder / "model.onnx.data").unlink()
    os.mkfifo(folder / "model.onnx.data")
    with pytest.raises(ModelError, match=r"model.onnx.data cannot be read: it is missing, or no"):
        load_model(folder)


@pytest.mark.parametrize("text", ["-1", "1_0", " 8 ", "٣", "x", "9" * 30])
def test_positions_are_plain_numbers(text: str, tmp_path: Path) -> None:
    def edit(proto: onnx.ModelProto) -> None:
        for each in proto.graph.initializer:
            for entry in each.external_data:
                if entry.key == "offset":
                    entry.value = text

    with pytest.raises(ModelError, match="offset of tensor"):
        load_model(edited(tmp_path / "m", edit))


@pytest.mark.parametrize("name", ["mod\x0fl.onnx.da", "../odel.onnx.dat", "mod\0l.onnx.data", ".."])
def test_a_tensor_nobody_asks_for_lies_in_the_folder_too(name: str, tmp_path: Path) -> None:
    def edit(proto: onnx.ModelProto) -> None:
        spare = proto.graph.initializer.add()
        spare.CopyFrom(proto.graph.initializer[0])
        spare.name = "spare"
        spare.ClearField("raw_data")
        spare.data_location = onnx.TensorProto.EXTERNAL
        del spare.external_data[:]
        spare.external_data.add(key="location", value=name)

    with pytest.raises(ModelError, match=r"tensor spare lies in .*, outside its folder"):
        load_model(edited(tmp_path / "m", edit))
