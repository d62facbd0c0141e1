"""What a decoder model is, as numbers, and the forms its weights take on the way to the graph.

Owns no file format and no ONNX: loaders produce a `ModelSpec` and a `WeightSource`, the graph
builder consumes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

BLOCK = 32
"""Inputs that share one scale unless a weight says otherwise: the block length of most of GGUF's
types, and of MatMulNBits as we build it."""

Activation = Literal["silu", "gelu_tanh"]
"""What the gate of a feed-forward layer goes through."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Shape and constants of a Llama-like decoder.

    `rope_interleaved`: pairs (2i, 2i+1) rotate together (GGUF's Llama order); otherwise (i, i +
    head_dim/2). `context_length` in tokens. `architecture` as GGUF names it ("llama").

    What only some families have, each with the default of those that have it not:
    `qkv_bias`: q, k and v have biases (Qwen2). `qk_norm`: each head of q and k is normalized
    before it is rotated (Qwen3, Gemma 3). `rope_factors` `[head_dim / 2]`: frequency i is divided
    by factor i (Llama 3's scaling, Gemma 3's linear one). `windows`, one a layer: how many
    positions, its own included, a token of that layer sees; 0 means all; empty means all in every
    layer. `local_rope_theta`: the base of layers with a window, unscaled; None means as in the
    others. `attention_scale`: what scores are multiplied by; None means `head_dim ** -0.5`.
    `embedding_scale` multiplies the embeddings. `post_norms`: each branch is normalized again
    before it is added (Gemma 3).
    """

    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    context_length: int
    rms_eps: float
    rope_theta: float
    rope_interleaved: bool
    tied_embedding: bool
    qkv_bias: bool = False
    qk_norm: bool = False
    rope_factors: tuple[float, ...] = ()
    windows: tuple[int, ...] = ()
    local_rope_theta: float | None = None
    attention_scale: float | None = None
    embedding_scale: float = 1.0
    post_norms: bool = False
    activation: Activation = "silu"

    def window_of(self, layer: int) -> int:
        """Positions that layer sees, 0 for all."""
        return self.windows[layer] if self.windows else 0

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values, float32, that one token position takes over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * 4


@dataclass(frozen=True, slots=True)
class DenseWeight:
    """A float32 array as it is: norms, matrices without a quantized form (`[out, in]`)."""

    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """`w[n, k] = scales[n, k // block] * (q[n, k] - 2**(bits - 1)) + offsets[n, k // block]`,
    exactly.

    `packed` uint8 `[out, in / block, block * bits / 8]` in MatMulNBits order (4 bits: element 2j
    in the low half of byte j, 2j + 1 in the high half); `scales`, `offsets` float32 `[out, in /
    block]`; `offsets` None means all zero. `block` is 32 or 16 (MatMulNBits is as fast with both
    at 8 bits, half as fast with 16 at 4 bits, measured).
    """

    bits: int
    packed: NDArray[np.uint8]
    scales: NDArray[np.float32]
    offsets: NDArray[np.float32] | None = None
    block: int = BLOCK

    @property
    def shape(self) -> tuple[int, int]:
        return self.packed.shape[0], self.packed.shape[1] * self.block


Weight = DenseWeight | QuantizedWeight


class WeightSource(Protocol):
    """Tensors of one model by GGUF's names (`token_embd.weight`, `blk.0.attn_q.weight`, ...)."""

    def names(self) -> Iterable[str]: ...

    def load(self, name: str) -> Weight:
        """Raises `ModelError` if the tensor is missing, truncated or of a type not supported."""
        ...
