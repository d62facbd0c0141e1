"""How every session of ours is set up."""

from __future__ import annotations

import onnxruntime as ort


def session_options(num_threads: int) -> ort.SessionOptions:
    """The graph is emitted in its final form, so no optimizer runs over it."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_mem_pattern = False
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options
