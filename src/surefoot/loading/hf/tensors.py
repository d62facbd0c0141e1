"""Hugging Face's tensor names -> GGUF's, and the tensors behind them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import ModelError
from surefoot.graph.spec import DenseWeight, Weight
from surefoot.loading.fidelity import finite
from surefoot.loading.gguf.blocks import from_bfloat16
from surefoot.loading.hf.safetensors import StoredTensor
from surefoot.loading.tensors import Shape

Floats = NDArray[np.float32]

_LAYER = re.compile(r"model\.layers\.(?P<layer>\d+)\.(?P<part>.+)\.(?P<kind>\w+)")
_PREFIXES = ("model.language_model.", "language_model.model.")
_LANGUAGE_HEAD = "language_model.lm_head."
_VISION = re.compile(r"(model\.)?(vision_tower|multi_modal_projector|visual)\.")

_ENDS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GEMMA3_PARTS = _PARTS | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_name(name: str, architecture: str) -> str | None:
    """`model.layers.0.self_attn.q_proj.weight` -> `blk.0.attn_q.weight`. None for what the text
    model does not use: image encoders, stored frequencies. A name that is not known stays as it
    is, for the check of names to find."""
    if _VISION.match(name) or name.endswith("rotary_emb.inv_freq"):
        return None
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            name = "model." + name.removeprefix(prefix)
    if name.startswith(_LANGUAGE_HEAD):
        name = "lm_head." + name.removeprefix(_LANGUAGE_HEAD)
    stem, _, kind = name.rpartition(".")
    if stem in _ENDS:
        return f"{_ENDS[stem]}.{kind}"
    match = _LAYER.fullmatch(name)
    parts = _GEMMA3_PARTS if architecture == "gemma3" else _PARTS
    if match is None or match["part"] not in parts:
        return name
    return f"blk.{match['layer']}.{parts[match['part']]}.{match['kind']}"


def by_gguf_name(
    file: str, tensors: Mapping[str, StoredTensor], architecture: str, tied: bool
) -> dict[str, StoredTensor]:
    """The text model's tensors; of a tied model the output matrix is left out, it is the same.
    Raises `ModelError` for two that stand for one."""
    named: dict[str, StoredTensor] = {}
    for stored, tensor in tensors.items():
        name = gguf_name(stored, architecture)
        if name is None or (tied and name.startswith("output.")):
            continue
        if name in named:
            raise ModelError(f"{file}: tensor {stored} is there under another name too")
        named[name] = tensor
    return named


class FloatTensors:
    """Float tensors by GGUF's names. `norms_from_one`: norm weights are stored less one (Gemma)."""

    def __init__(
        self, file: str, tensors: Mapping[str, StoredTensor], *, norms_from_one: bool
    ) -> None:
        self._file = file
        self._tensors = tensors
        self._norms_from_one = norms_from_one
        for name, tensor in tensors.items():
            if tensor.dtype not in ("F32", "F16", "BF16"):
                raise ModelError(
                    f"{file}: tensor {name} has type {tensor.dtype}; a model that is not "
                    "quantized has F32, F16 and BF16 only"
                )

    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def shapes(self) -> dict[str, Shape]:
        return {name: tensor.raw.shape for name, tensor in self._tensors.items()}

    def type_of(self, name: str) -> str:
        return self._tensors[name].dtype

    def load(self, name: str) -> Weight:
        """Raises `ModelError` for a tensor that holds NaN or infinity."""
        return finite(f"{self._file}: tensor {name}", lambda: DenseWeight(self.values(name)))

    def values(self, name: str) -> Floats:
        values = as_float32(self._tensors[name])
        return values + 1 if self._norms_from_one and "norm" in name else values


def as_float32(tensor: StoredTensor) -> Floats:
    """A copy in memory, so that it outlives the file and is aligned."""
    raw = np.ascontiguousarray(tensor.raw)
    if tensor.dtype == "BF16":
        return from_bfloat16(raw)
    return np.array(raw, dtype=np.float32)
