"""Hugging Face transformers in float32: plain, and with `prompt_lookup_num_tokens`.

`model` is a folder with the weights and the tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from peers.engine import Message, unknown_mode
from peers.streaming import Put, streamed

LOOKUP_TOKENS = 10
"""The value in the library's own documentation."""


class Transformers:
    def __init__(self, model: Path, threads: int, options: dict[str, Any]) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        self.version = f"transformers {transformers.__version__}, torch {torch.__version__}"
        self._torch = torch
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(model)
        self._options = options

    def encode(self, messages: Sequence[Message]) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def generate(self, prompt_ids: Sequence[int], num_tokens: int) -> Iterator[list[int]]:
        inputs = self._torch.tensor([list(prompt_ids)])

        def run(put: Put) -> None:
            self._model.generate(
                inputs,
                attention_mask=self._torch.ones_like(inputs),
                do_sample=False,
                min_new_tokens=num_tokens,
                max_new_tokens=num_tokens,
                streamer=Streamer(put),
                **self._options,
            )

        return streamed(run)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))


class Streamer:
    """`put` gets the prompt first, then tokens as they are settled."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self._prompt_seen = False

    def put(self, value: Any) -> None:
        if self._prompt_seen:
            self._put([int(token) for token in value.flatten()])
        self._prompt_seen = True

    def end(self) -> None:
        """The iterator ends when `generate` returns."""


def open_engine(mode: str, model: Path, threads: int) -> Transformers:
    options = {"plain": {}, "prompt-lookup": {"prompt_lookup_num_tokens": LOOKUP_TOKENS}}
    if mode not in options:
        raise unknown_mode(mode, list(options))
    return Transformers(model, threads, options[mode])
