"""Running a model's graph once, without an engine: token ids in, logits out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import numpy_helper

from surefoot.graph import io_names
from surefoot.graph.decoder import build_decoder
from surefoot.graph.spec import ModelSpec, WeightSource
from surefoot.graph.weights import convert_weights


class GraphRun:
    """One row over one window of `capacity` positions, fed in as many pieces as one likes."""

    def __init__(
        self, spec: ModelSpec, weights: WeightSource, *, capacity: int = 64, accuracy_level: int = 1
    ) -> None:
        arrays, layouts = convert_weights(spec, weights)
        protos = [
            numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()
        ]
        model = build_decoder(spec, layouts, protos, 1, accuracy_level)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._vocab_size = spec.vocab_size
        self._binding = self._session.io_binding()
        shape = (1, spec.num_kv_heads, capacity, spec.head_dim)
        for layer in range(spec.num_layers):
            for past, present in (
                (io_names.past_key, io_names.present_key),
                (io_names.past_value, io_names.present_value),
            ):
                value = ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype=np.float32))
                self._binding.bind_ortvalue_input(past(layer, 0), value)
                self._binding.bind_ortvalue_output(present(layer, 0), value)

    def feed(self, ids: Sequence[int], start: int = 0) -> NDArray[np.float32]:
        """Feed tokens from position `start` on: `[len(ids), vocab]`, the logits after each."""
        count, binding = len(ids), self._binding
        inputs = {
            io_names.INPUT_IDS: np.array(ids, dtype=np.int64),
            io_names.ROW_LENGTHS: np.array([count], dtype=np.int64),
            io_names.TOTAL_LENGTHS: np.array([start + count], dtype=np.int32),
            io_names.ASKED: np.arange(count, dtype=np.int64),
        }
        for name, values in inputs.items():
            binding.bind_cpu_input(name, values)
        logits = np.empty((count, self._vocab_size), dtype=np.float32)
        value = ort.OrtValue.ortvalue_from_numpy(logits)
        binding.bind_ortvalue_output(io_names.LOGITS, value)
        self._session.run_with_iobinding(binding)
        return logits
