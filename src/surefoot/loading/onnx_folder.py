"""Folders with a ready-made ONNX graph, of onnxruntime-genai or Optimum: recognized and refused.

surefoot serves several rows over windows of its own in one forward, undoes rejected drafts by
stating lengths and answers chosen positions only. Those graphs take one padded batch, copy the
whole cache at every step and answer every position, so they could run but not be served.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from surefoot.errors import ModelError
from surefoot.loading.hf_config import read_json


def refuse_onnx(folder: Path) -> NoReturn:
    """Raises `ModelError` with the reason and what to take instead."""
    if (folder / "genai_config.json").is_file():
        model = read_json(folder / "genai_config.json").get("model", {})
        kind = f"an onnxruntime-genai graph ({model.get('type', 'type unknown')})"
    else:
        kind = "an ONNX graph exported by Optimum or another tool"
    raise ModelError(
        f"{folder.name} holds {kind}; surefoot builds its own graph, for rows of different "
        "lengths in one forward, and cannot serve this one: take the model's GGUF file, MLX "
        "folder or safetensors"
    )
