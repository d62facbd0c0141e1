"""What an engine must do to be compared, and where each is found."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

Message = Mapping[str, str]


class Engine(Protocol):
    """Greedy decoding of one request at a time."""

    version: str

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The chat through the model's own template, with the opening of the answer."""
        ...

    def generate(self, prompt_ids: Sequence[int], num_tokens: int) -> Iterator[list[int]]:
        """Exactly `num_tokens` tokens, whatever end tokens come, nothing kept from earlier prompts;
        yielded as soon as they are there: one at a time, or a round's together."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...


MODULES = {
    "llama-cpp-python": "peers.llama_cpp_engine",
    "onnxruntime-genai": "peers.onnx_genai_engine",
    "openvino-genai": "peers.openvino_engine",
    "transformers": "peers.transformers_engine",
}


def open_engine(name: str, mode: str, model: Path, threads: int) -> Engine:
    """Raises `ImportError` where the engine is not installed, `ValueError` for an unknown mode."""
    module = importlib.import_module(MODULES[name])
    engine: Engine = module.open_engine(mode, model, threads)
    return engine


def unknown_mode(mode: str, known: Sequence[str]) -> ValueError:
    return ValueError(f"unknown mode {mode!r}; there are {', '.join(known)}")
