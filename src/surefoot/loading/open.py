"""From a path to a loaded model, whatever kind of file or folder it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from surefoot.errors import ModelError
from surefoot.loading.model import LoadedModel
from surefoot.loading.quantizing import Progress, Quantize, QuantizingWeights, no_progress


def load_model(
    path: Path, quantize: Quantize | None = None, progress: Progress = no_progress
) -> LoadedModel:
    """A GGUF file (one part of a split one stands for all), or a folder with `config.json` and
    safetensors, MLX's affine groups among them, or a folder of onnxruntime-genai's model builder.

    `quantize`: what becomes of matrices that come as floats. None means 8 bits for a folder of
    safetensors and no change for a GGUF file or an ONNX folder, which were made in the form that
    somebody wanted. What is quantized already is never changed. `progress` is told of matrices
    done. Raises `ModelError`, one line.
    """
    if path.is_dir():
        return _load_folder(path, quantize, progress)
    from surefoot.loading.gguf.model import load_gguf

    loaded = load_gguf(path)
    return loaded if quantize in (None, "none") else _quantized(loaded, quantize, progress)


def _load_folder(folder: Path, quantize: Quantize | None, progress: Progress) -> LoadedModel:
    if not any(folder.glob("*.safetensors")) and any(folder.rglob("*.onnx")):
        from surefoot.loading.onnx.model import load_onnx_folder

        return load_onnx_folder(folder, quantize or "none", progress)
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder.name} holds neither a GGUF file nor a config.json")
    from surefoot.loading.hf.model import load_hf_folder

    return load_hf_folder(folder, quantize or "q8", progress)


def _quantized(loaded: LoadedModel, quantize: Quantize | None, progress: Progress) -> LoadedModel:
    assert quantize is not None
    floats = [
        name
        for name, kind in loaded.tensor_types.items()
        if kind in ("F32", "F16", "BF16") and not name.endswith(("norm.weight", ".bias"))
    ]
    weights = QuantizingWeights(loaded.weights, floats, quantize, progress)
    return replace(loaded, weights=weights, fingerprint=f"{loaded.fingerprint}-{quantize}")
