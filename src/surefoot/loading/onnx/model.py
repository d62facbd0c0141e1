"""Folders of onnxruntime-genai's model builder -> LoadedModel; other ONNX folders are refused.

The ONNX graph is read as a container of weights: surefoot serves several rows over windows of its
own in one forward, undoes rejected drafts by stating lengths and answers chosen positions only,
and such graphs take one padded batch. So the graph is checked, operation by operation, to be a
Llama-like decoder, its weights are taken as they are, and surefoot's own graph is built of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.errors import ModelError
from surefoot.graph.spec import ModelSpec
from surefoot.loading.fidelity import TracedWeights
from surefoot.loading.folder import is_plain_name
from surefoot.loading.hf.config import read_json
from surefoot.loading.hf.text_files import read_text_files
from surefoot.loading.model import LoadedModel, TextFiles
from surefoot.loading.onnx.file import OnnxGraph, read_onnx
from surefoot.loading.onnx.graph import OnnxDecoder, read_decoder
from surefoot.loading.onnx.rotation import read_rotation
from surefoot.loading.onnx.weights import OnnxWeights, Part, check_fused, parts_of
from surefoot.loading.quantizing import Progress, Quantize, QuantizingWeights, no_progress
from surefoot.loading.tensors import check_tensors

CONFIG = "genai_config.json"
FAMILIES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""The configuration's `model.type` to the architecture's name in GGUF."""

READ_ALREADY = ("local_window_size", "scale", "rotary_interleaved", "qk_norm_epsilon")
"""Attributes of an attention operator that the spec has a place for."""

MAX_COUNT = 2**31 - 1
"""Of anything that the configuration counts."""

INSTEAD = "take the model's GGUF file, MLX folder or safetensors"


def load_onnx_folder(
    folder: Path, quantize: Quantize = "none", progress: Progress = no_progress
) -> LoadedModel:
    """Weights stay in their file until asked for. `quantize`: what becomes of matrices that are
    stored as floats. Raises `ModelError`, one line, for what does not fit."""
    model = _model_entry(folder)
    decoder_entry = _entry(model, "decoder")
    path = _graph_path(folder, decoder_entry)
    graph = read_onnx(path)
    decoder = read_decoder(graph, _count(folder, decoder_entry, "num_hidden_layers"))
    spec = _spec(folder, model, graph, decoder)
    check_fused(graph, decoder, spec)
    parts = parts_of(decoder, spec)
    source = OnnxWeights(graph, parts)
    shapes = source.shapes()
    check_tensors(path.name, spec, shapes)
    weights: TracedWeights = source
    if quantize != "none":
        matrices = [name for name, shape in shapes.items() if len(shape) == 2]
        weights = QuantizingWeights(source, matrices, quantize, progress)
    return LoadedModel(
        name=folder.name,
        spec=spec,
        weights=weights,
        metadata={},
        fingerprint=_fingerprint(path, graph, parts, quantize),
        tensor_types={name: source.type_of(name) for name in shapes},
        weight_bytes=sum(graph.array(name).nbytes for name in _stored(parts)),
        text=_text(folder, model),
    )


def _graph_path(folder: Path, decoder_entry: Mapping[str, Any]) -> Path:
    name = decoder_entry.get("filename", "model.onnx")
    if not isinstance(name, str) or not is_plain_name(name):
        raise ModelError(
            f"{folder.name}: {CONFIG} names {Path(str(name)).name[:80]} outside its folder"
        )
    path = folder / name
    if not path.is_file():
        raise ModelError(f"{folder.name}: {name} is missing; {CONFIG} calls for it")
    return path


def _model_entry(folder: Path) -> Mapping[str, Any]:
    """Raises `ModelError` unless the folder is of a family that is known."""
    if not (folder / CONFIG).is_file():
        raise ModelError(
            f"{folder.name} holds an ONNX graph exported by Optimum or another tool; surefoot "
            f"reads those of onnxruntime-genai's model builder ({CONFIG} is missing): {INSTEAD}"
        )
    model = _entry(read_json(folder / CONFIG), "model")
    kind = model.get("type", "type unknown")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ModelError(
            f"{folder.name} holds an onnxruntime-genai graph ({str(kind)[:80]}), which is not "
            f"supported; supported: {', '.join(FAMILIES)}; {INSTEAD}"
        )
    return model


def _entry(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    return value if isinstance(value, Mapping) else {}


def _count(folder: Path, entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
        raise ModelError(
            f"{folder.name}: {key} in {CONFIG} is {repr(value)[:80]}, not from 1 to {MAX_COUNT}"
        )
    return value


def _spec(
    folder: Path, model: Mapping[str, Any], graph: OnnxGraph, decoder: OnnxDecoder
) -> ModelSpec:
    entry = _entry(model, "decoder")
    first = decoder.layers[0]
    hidden = _count(folder, entry, "hidden_size")
    heads = _count(folder, entry, "num_attention_heads")
    kv_heads = _count(folder, entry, "num_key_value_heads")
    if heads % kv_heads:
        raise ModelError(f"{folder.name} has {heads} heads for {kv_heads} of keys and values")
    gate = OnnxWeights(graph, {"gate": Part(first.gate.matrix)}).shapes()["gate"]
    spec = ModelSpec(
        architecture=FAMILIES[model["type"]],
        num_layers=len(decoder.layers),
        hidden_size=hidden,
        intermediate_size=gate[0],
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=_count(folder, entry, "head_size"),
        vocab_size=_count(folder, model, "vocab_size"),
        context_length=_count(folder, model, "context_length"),
        rms_eps=decoder.rms_eps,
        rope_theta=1.0,
        rope_interleaved=False,
        tied_embedding=decoder.embedding == decoder.head,
        qkv_bias=bool(first.attention.qkv[0].bias),
        qk_norm=bool(first.attention.q_norm),
    )
    return _attended(spec, graph, decoder)


def _attended(spec: ModelSpec, graph: OnnxGraph, decoder: OnnxDecoder) -> ModelSpec:
    """With what the attention operators say: rotation, windows, scale."""
    windows: list[int] = []
    common: set[tuple[Any, ...]] = set()
    for layer in decoder.layers:
        node = layer.attention.node
        found = dict(node.attributes)
        window = graph.whole(node, "local_window_size", -1)
        windows.append(max(0, min(window, MAX_COUNT)))
        for key, wanted in (("num_heads", spec.num_heads), ("kv_num_heads", spec.num_kv_heads)):
            if found.pop(key, None) != wanted:
                raise ModelError(f"{graph.file}: {key} of {node.name} is not {wanted}")
        scale = graph.number(node, "scale", 0.0) or spec.head_dim**-0.5
        interleaved = graph.whole(node, "rotary_interleaved", 0)
        if not 1e-6 < scale < 1e6 or interleaved not in (0, 1):
            raise ModelError(
                f"{graph.file}: {node.name} has scale {scale:g}, rotary_interleaved {interleaved}"
            )
        if found.pop("do_rotary", 0) != 1:
            raise ModelError(f"{graph.file} does not fit: {node.name} rotates by another operator")
        epsilon = graph.number(node, "qk_norm_epsilon", spec.rms_eps)
        for key in READ_ALREADY:
            found.pop(key, None)
        if abs(epsilon - spec.rms_eps) > 1e-9 or any(found.values()):
            raise ModelError(f"{graph.file} does not fit: {node.name} has {found}, not known")
        common.add((scale, interleaved, node.input(7), node.input(8)))
    if len(common) != 1:
        raise ModelError(f"{graph.file} does not fit: its layers attend in different ways")
    ((scale, interleaved, cosines, sines),) = common
    is_usual = abs(scale * spec.head_dim**0.5 - 1) < 1e-6
    spec = replace(
        spec,
        windows=tuple(windows) if any(windows) else (),
        attention_scale=None if is_usual else scale,
        rope_interleaved=bool(interleaved),
    )
    return read_rotation(spec, graph, cosines, sines)


def _stored(parts: Mapping[str, Part]) -> set[str]:
    names: set[str] = set()
    for part in parts.values():
        source = part.source
        if isinstance(source, str):
            names.add(source)
        else:
            names |= {source.data, source.scales, source.zero_points} - {""}
    return names


def _fingerprint(path: Path, graph: OnnxGraph, parts: Mapping[str, Part], quantize: str) -> str:
    """Changes with the graph, and with the size or time of each file that its tensors lie in."""
    key = hashlib.blake2b(path.read_bytes()[: 1 << 24] + quantize.encode(), digest_size=16)
    key.update(repr(sorted(parts.items(), key=lambda item: item[0])).encode())
    for file in (path, *graph.data_files()):
        stat = file.stat()
        key.update(f"{file.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return key.hexdigest()


def _text(folder: Path, model: Mapping[str, Any]) -> TextFiles | None:
    """The builder writes no generation_config.json: end tokens are in its own configuration."""
    text = read_text_files(folder)
    ends = model.get("eos_token_id")
    ids = ends if isinstance(ends, list) else [ends]
    known = {value for value in ids if isinstance(value, int) and not isinstance(value, bool)}
    return text and replace(text, end_ids=tuple(sorted(known | set(text.end_ids))))
