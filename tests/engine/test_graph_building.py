"""Graphs as they are written for the cache, and graphs for more rows made from those."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from gguf import GGMLQuantizationType as Type

from support.tiny_models import TinyModel
from surefoot.engine.graph_building import derive_rows, write_packed
from surefoot.engine.session_options import session_options
from surefoot.graph.layouts import LinearLayout
from surefoot.loading.gguf.model import load_gguf
from surefoot.loading.model import LoadedModel

LEVEL, THREADS, EXTERNAL_FROM = 4, 1, 256


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_gguf(TinyModel(linear=Type.Q4_1).write(tmp_path_factory.mktemp("m") / "t.gguf"))


@pytest.fixture(scope="module")
def packed(
    model: LoadedModel, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, LinearLayout]]:
    graph = tmp_path_factory.mktemp("packed") / "one.onnx"
    layouts = write_packed(
        graph, "weights.bin", model.spec, model.weights, LEVEL, THREADS, EXTERNAL_FROM
    )
    return graph, layouts


def weights_of(model: onnx.ModelProto) -> dict[str, dict[str, str]]:
    return {
        each.name: {entry.key: entry.value for entry in each.external_data}
        for each in model.graph.initializer
    }


def test_large_weights_lie_beside_the_graph_and_small_ones_in_it(
    packed: tuple[Path, dict[str, LinearLayout]],
) -> None:
    graph, _ = packed
    content = onnx.load(str(graph), load_external_data=False)
    outside = {name for name, entries in weights_of(content).items() if entries}
    assert "blk.0.qkv.packed" in outside
    for each in content.graph.initializer:
        if each.name in outside:
            assert weights_of(content)[each.name]["location"] == "weights.bin"
        else:
            assert len(each.raw_data) < EXTERNAL_FROM
    assert (graph.parent / "weights.bin").stat().st_size > 0


@pytest.mark.parametrize("num_rows", [1, 2, 3])
def test_a_derived_graph_shares_every_weight_and_runs_as_many_rows(
    model: LoadedModel, packed: tuple[Path, dict[str, LinearLayout]], num_rows: int
) -> None:
    graph, layouts = packed
    content = derive_rows(graph, layouts, model.spec, num_rows, LEVEL)
    base, derived = onnx.load(str(graph), load_external_data=False), onnx.ModelProto()
    derived.ParseFromString(content)
    large = {name: entries for name, entries in weights_of(base).items() if entries}
    assert {k: v for k, v in weights_of(derived).items() if v} == large
    kinds = [node.op_type for node in derived.graph.node]
    assert kinds.count("GroupQueryAttention") == num_rows * model.spec.num_layers
    path = graph.parent / f"rows-{num_rows}.onnx"
    path.write_bytes(content)
    session = ort.InferenceSession(
        str(path), session_options(THREADS), providers=["CPUExecutionProvider"]
    )
    caches = [each.name for each in session.get_inputs() if len(each.shape) == 4]
    assert len(caches) == 2 * num_rows * model.spec.num_layers


def test_sessions_run_graphs_as_they_are() -> None:
    options = session_options(3)
    assert options.intra_op_num_threads == 3
    assert options.inter_op_num_threads == 1
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_DISABLE_ALL
