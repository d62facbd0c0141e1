"""Making what `packed_graph` keeps: graphs from weights, and graphs for more rows from those.

Imported only when there is something to make: a server that finds its graphs made starts without
the `onnx` package (12 MB, and a tenth of its starting time).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from surefoot.engine.session_options import session_options
from surefoot.graph.decoder import build_decoder
from surefoot.graph.layouts import LinearLayout
from surefoot.graph.quantization import Array
from surefoot.graph.spec import ModelSpec, WeightSource
from surefoot.graph.weights import convert_weights


def write_packed(
    graph: Path,
    weights: str,
    spec: ModelSpec,
    source: WeightSource,
    accuracy_level: int,
    num_threads: int,
    external_from_bytes: int,
) -> dict[str, LinearLayout]:
    """Convert the weights, have ONNX Runtime pack them for this CPU and write both: the graph for
    one row to `graph`, what is of `external_from_bytes` or more to the file `weights` beside it.
    Returns the layouts that graphs for other numbers of rows are derived with."""
    arrays, layouts = convert_weights(spec, source)
    protos, external = _initializers(arrays, external_from_bytes)
    model = build_decoder(spec, layouts, protos, 1, accuracy_level)
    options = session_options(num_threads)
    options.add_external_initializers(list(external), list(external.values()))
    options.optimized_model_filepath = str(graph)
    for key, value in (
        ("session.optimized_model_external_initializers_file_name", weights),
        (
            "session.optimized_model_external_initializers_min_size_in_bytes",
            str(external_from_bytes),
        ),
        ("session.save_external_prepacked_constant_initializers", "1"),
    ):
        options.add_session_config_entry(key, value)
    ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"], enable_fallback=0
    )
    return layouts


def derive_rows(
    packed: Path,
    layouts: Mapping[str, LinearLayout],
    spec: ModelSpec,
    num_rows: int,
    accuracy_level: int,
) -> bytes:
    """The graph for `num_rows` rows over the weights of the packed one, as a file's content."""
    base = onnx.load(str(packed), load_external_data=False)
    model = build_decoder(spec, layouts, base.graph.initializer, num_rows, accuracy_level)
    content: bytes = model.SerializeToString()
    return content


def _initializers(
    arrays: Mapping[str, Array], external_from_bytes: int
) -> tuple[list[onnx.TensorProto], dict[str, ort.OrtValue]]:
    """Small arrays inside the graph, large ones handed over in memory."""
    protos: list[onnx.TensorProto] = []
    external: dict[str, ort.OrtValue] = {}
    for name, array in arrays.items():
        if array.nbytes < external_from_bytes:
            protos.append(numpy_helper.from_array(np.asarray(array), name))
            continue
        proto = onnx.TensorProto(
            name=name,
            data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
            dims=array.shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        for key, value in (("location", "memory"), ("offset", "0"), ("length", str(array.nbytes))):
            proto.external_data.add(key=key, value=value)
        protos.append(proto)
        external[name] = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
    return protos, external
