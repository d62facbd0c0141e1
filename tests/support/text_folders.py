"""Small Hugging Face and MLX folders with a tokenizer and a template, for tests from end to end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from support.model_files import SmallModel, hf_name, to_mlx, write_folder
from support.tiny_text import CHATML, CONTROL_TEXTS, tiny_metadata

TOKENS = cast(list[str], tiny_metadata()["tokenizer.ggml.tokens"])
MODEL = SmallModel("qwen2", vocab=len(TOKENS), context=256)


def write_hf_folder(path: Path, shards: Sequence[str] = ()) -> Path:
    """Float32 weights in one file or in shards."""
    tensors = {hf_name(name, "qwen2"): values for name, values in MODEL.tensors().items()}
    return _with_text(write_folder(path, MODEL.config(), tensors, shards))


def write_mlx_folder(path: Path, bits: int = 4, group: int = 32) -> Path:
    """Every matrix in MLX's affine groups."""
    stored = {}
    for name, values in MODEL.tensors().items():
        given = hf_name(name, "qwen2")
        stored |= to_mlx(given, values, bits, group)[0] if values.ndim == 2 else {given: values}
    config = MODEL.config() | {"quantization": {"bits": bits, "group_size": group}}
    return _with_text(write_folder(path, config, stored))


def _with_text(path: Path) -> Path:
    vocab = {text: token_id for token_id, text in enumerate(TOKENS)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(CONTROL_TEXTS))
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "chat_template.jinja").write_text(CHATML)
    (path / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    return path
