"""onnxruntime-genai's `Generator`: plain, fixed n-gram drafts, and adaptive ones.

`model` is a folder with `genai_config.json`, an ONNX graph and the tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from peers.engine import Message, unknown_mode

MODES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "ngram": {"ngram_size": 4, "max_draft_tokens": 4},
    "adaptive": {
        "ngram_size": 4,
        "max_draft_tokens": 8,
        "ngram_chained_lookup": True,
        "min_adaptive_k": 2,
        "cooldown": True,
    },
}
"""The settings that its documentation shows or advises to start with; cooldown on, for chat."""


class OnnxGenai:
    def __init__(self, model: Path, threads: int, speculative: Mapping[str, Any]) -> None:
        import onnxruntime_genai as og

        self.version = f"onnxruntime-genai {version('onnxruntime-genai')}"
        self._og = og
        config = og.Config(str(model))
        session = {"intra_op_num_threads": threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
        self._model = og.Model(config)
        self._tokenizer = og.Tokenizer(self._model)
        self._speculative = speculative

    def encode(self, messages: Sequence[Message]) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            json.dumps(list(messages)), add_generation_prompt=True
        )
        return [int(token) for token in self._tokenizer.encode(text)]

    def generate(self, prompt_ids: Sequence[int], num_tokens: int) -> Iterator[list[int]]:
        """A `min_length` keeps end tokens out."""
        params = self._og.GeneratorParams(self._model)
        length = len(prompt_ids) + num_tokens
        params.set_search_options(do_sample=False, min_length=length, max_length=length)
        if self._speculative:
            params.set_speculative_options(**self._speculative)
        generator = self._og.Generator(self._model, params)
        generator.append_tokens(list(prompt_ids))
        while not generator.is_done():
            generator.generate_next_token()
            yield [int(token) for token in generator.get_next_tokens()]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))


def open_engine(mode: str, model: Path, threads: int) -> OnnxGenai:
    if mode not in MODES:
        raise unknown_mode(mode, list(MODES))
    return OnnxGenai(model, threads, MODES[mode])
