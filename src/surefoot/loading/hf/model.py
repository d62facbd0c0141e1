"""A Hugging Face or MLX folder -> LoadedModel: config.json, safetensors, tokenizer files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from surefoot.errors import ModelError
from surefoot.graph.spec import ModelSpec
from surefoot.loading.fidelity import TracedWeights
from surefoot.loading.hf.config import HfConfig, read_spec
from surefoot.loading.hf.safetensors import StoredTensor, read_folder
from surefoot.loading.hf.tensors import FloatTensors, by_gguf_name
from surefoot.loading.hf.text_files import read_text_files
from surefoot.loading.mlx.weights import MlxTensors, read_groupings
from surefoot.loading.model import LoadedModel
from surefoot.loading.quantizing import Progress, Quantize, QuantizingWeights, no_progress
from surefoot.loading.tensors import check_tensors


def load_hf_folder(
    folder: Path, quantize: Quantize = "q8", progress: Progress = no_progress
) -> LoadedModel:
    """Read the folder's configuration; weights stay in their files until asked for.

    Float models are quantized as `quantize` says when they are loaded; MLX's are exact whatever it
    says. Raises `ModelError`: a model or quantization that is not supported, a file missing or
    damaged, a tensor that the model has not or should have.
    """
    config = HfConfig(folder)
    stored, identity = read_folder(folder)
    has_head = any(name.endswith("lm_head.weight") for name in stored)
    spec = read_spec(config, has_head)
    tensors = by_gguf_name(config.name, stored, config.architecture, spec.tied_embedding)
    source = _tensors(config, spec, tensors)
    shapes = source.shapes()
    check_tensors(folder.name, spec, shapes)
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    weights: TracedWeights = source
    if isinstance(source, FloatTensors):
        weights = QuantizingWeights(source, matrices, quantize, progress)
    text = (folder / "config.json").read_bytes()
    key = hashlib.blake2b(text + identity + quantize.encode(), digest_size=16)
    return LoadedModel(
        name=folder.name,
        spec=spec,
        weights=weights,
        metadata={},
        fingerprint=key.hexdigest(),
        tensor_types={name: source.type_of(name) for name in shapes},
        weight_bytes=sum(tensor.raw.nbytes for tensor in tensors.values()),
        text=read_text_files(folder),
    )


def _tensors(
    config: HfConfig, spec: ModelSpec, tensors: Mapping[str, StoredTensor]
) -> FloatTensors | MlxTensors:
    quantization = config.quantization
    norms_from_one = spec.architecture == "gemma3"
    if quantization is None:
        return FloatTensors(config.name, tensors, norms_from_one=norms_from_one)
    if "group_size" not in quantization or "quant_method" in quantization:
        method = quantization.get("quant_method", "unknown")
        raise ModelError(
            f"{config.name} is quantized by {method}, which is not supported; "
            "take the original weights, or a GGUF or MLX file of the model"
        )
    usual, single = read_groupings(config.name, quantization, spec.architecture)
    return MlxTensors(config.name, tensors, usual, single, norms_from_one=norms_from_one)
