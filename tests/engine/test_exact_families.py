"""The deterministic mode for the other families: biases, head norms, attention with a window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from support.engine_runs import ASKING, Steps
from support.tiny_models import TinyShape, open_engine, random_tensors, write_gguf

SHAPE = TinyShape(layers=6, heads=2, kv_heads=1, head_dim=32)
"""Six layers: Gemma 3's pattern of five with a window and one without."""

QUERY, KV, HIDDEN, HEAD = 64, 32, SHAPE.hidden, SHAPE.head_dim
VECTORS: dict[str, dict[str, int]] = {
    "qwen2": {"attn_q.bias": QUERY, "attn_k.bias": KV, "attn_v.bias": KV},
    "qwen3": {"attn_q_norm.weight": HEAD, "attn_k_norm.weight": HEAD},
    "gemma3": {
        "attn_q_norm.weight": HEAD,
        "attn_k_norm.weight": HEAD,
        "post_attention_norm.weight": HIDDEN,
        "post_ffw_norm.weight": HIDDEN,
    },
}


def family_file(path: Path, family: str) -> Path:
    metadata = {
        key.replace("llama.", f"{family}."): value for key, value in SHAPE.metadata().items()
    }
    if family == "gemma3":
        metadata["gemma3.attention.sliding_window"] = 40
    tensors: dict[str, NDArray[Any]] = random_tensors(SHAPE, tied=True)
    rng = np.random.default_rng(0)
    for layer in range(SHAPE.layers):
        for name, size in VECTORS[family].items():
            values = 1 + 0.2 * rng.standard_normal(size)
            tensors[f"blk.{layer}.{name}"] = values.astype(np.float32)
    return write_gguf(
        path,
        metadata,
        tensors,
        lambda name: Type.F32 if tensors[name].ndim == 1 else Type.Q4_0,
        architecture=family,
    )


@pytest.mark.parametrize("family", VECTORS)
def test_groupings_change_no_bit(tmp_path: Path, family: str) -> None:
    path = family_file(tmp_path / "tiny.gguf", family)
    engine = open_engine(path, tmp_path / "graphs", num_windows=2, deterministic=True)
    steps = Steps(engine)
    ids = np.random.default_rng(1).integers(0, SHAPE.vocab, 140).tolist()
    wanted = steps.answers(ids, [len(ids)], params=ASKING)
    for widths in ([1], [2, 1, 5], [41], [65], [129]):
        assert steps.answers(ids, widths, window=1, params=ASKING) == wanted
    engine.close()
