"""A byte-level vocabulary small enough to read: 256 bytes, a few merges, some control tokens."""

from __future__ import annotations

from surefoot.text.tokenizer import Tokenizer
from surefoot.text.vocabulary.byte_alphabet import CHAR_OF_BYTE

CONTROL_TEXTS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ Ġ", "< |", "| >", "Ã ©")
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_metadata(**changes: object) -> dict[str, object]:
    """GGUF metadata: ids 0 to 2 are `CONTROL_TEXTS`, 3 + b is byte b, then the merges, then the
    user-defined token `<think>`. `changes` replace keys by their last part; None removes one."""
    tokens = [*CONTROL_TEXTS, *(CHAR_OF_BYTE[byte] for byte in range(256))]
    tokens += [merge.replace(" ", "") for merge in MERGES] + ["<think>"]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 4) + [4],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": CHATML,
    }
    for key, value in changes.items():
        name = key if key.startswith("tokenizer.") else f"tokenizer.ggml.{key}"
        if value is None:
            del metadata[name]
        else:
            metadata[name] = value
    return metadata


def tiny_tokenizer(**changes: object) -> Tokenizer:
    return Tokenizer.from_gguf_metadata(tiny_metadata(**changes))
