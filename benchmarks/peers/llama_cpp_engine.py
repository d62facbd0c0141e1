"""llama.cpp through llama-cpp-python: plain, and its own prompt lookup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from peers.engine import Message, unknown_mode

CONTEXT = 8192


class LlamaCpp:
    def __init__(self, model: Path, threads: int, draft_model: Any) -> None:
        import llama_cpp
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        self.version = f"llama-cpp-python {llama_cpp.__version__}"
        self._llama = llama_cpp.Llama(
            str(model),
            n_ctx=CONTEXT,
            n_threads=threads,
            n_threads_batch=threads,
            draft_model=draft_model,
            logits_all=draft_model is not None,
            verbose=False,
        )
        meta = self._llama.metadata

        def text_of(name: str) -> str:
            return str(self._llama._model.token_get_text(int(meta[name])))

        self._format = Jinja2ChatFormatter(
            template=meta["tokenizer.chat_template"],
            eos_token=text_of("tokenizer.ggml.eos_token_id"),
            bos_token=text_of("tokenizer.ggml.bos_token_id"),
        )

    def encode(self, messages: Sequence[Message]) -> list[int]:
        prompt = self._format(messages=list(messages)).prompt
        return list(self._llama.tokenize(prompt.encode(), add_bos=False, special=True))

    def generate(self, prompt_ids: Sequence[int], num_tokens: int) -> Iterator[list[int]]:
        self._llama.reset()
        stream = self._llama.generate(prompt_ids, temp=0.0, reset=False, repeat_penalty=1.0)
        for token in islice(stream, num_tokens):
            yield [token]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._llama.detokenize(list(ids)).decode("utf-8", "replace"))


def open_engine(mode: str, model: Path, threads: int) -> LlamaCpp:
    if mode == "plain":
        return LlamaCpp(model, threads, None)
    if mode == "prompt-lookup":
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        return LlamaCpp(model, threads, LlamaPromptLookupDecoding())
    raise unknown_mode(mode, ["plain", "prompt-lookup"])
