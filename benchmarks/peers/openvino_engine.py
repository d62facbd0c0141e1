"""OpenVINO GenAI's `LLMPipeline` on the CPU: plain, and with its prompt lookup.

`model` is a GGUF file or a folder with OpenVINO's own form of a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from peers.engine import Message, unknown_mode
from peers.streaming import Put, streamed

LOOKUP = {"num_assistant_tokens": 5, "max_ngram_size": 3}
"""The values of its own prompt-lookup sample."""


class OpenVino:
    def __init__(self, model: Path, threads: int, lookup: bool) -> None:
        import openvino_genai

        self.version = f"openvino-genai {version('openvino-genai')}"
        self._ov = openvino_genai
        options: dict[str, Any] = {"prompt_lookup": True} if lookup else {}
        options["INFERENCE_NUM_THREADS"] = threads
        self._pipeline = openvino_genai.LLMPipeline(str(model), "CPU", **options)
        self._tokenizer = self._pipeline.get_tokenizer()
        self._lookup = lookup

    def encode(self, messages: Sequence[Message]) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True
        )
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        return [int(token) for token in encoded.input_ids.data[0]]

    def generate(self, prompt_ids: Sequence[int], num_tokens: int) -> Iterator[list[int]]:
        import numpy
        import openvino

        inputs = openvino.Tensor(numpy.array([list(prompt_ids)], dtype=numpy.int64))
        config = self._ov.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = num_tokens, True, False
        if self._lookup:
            config.num_assistant_tokens = LOOKUP["num_assistant_tokens"]
            config.max_ngram_size = LOOKUP["max_ngram_size"]

        def run(put: Put) -> None:
            self._pipeline.generate(inputs, config, streamer(self._ov, put))

        return streamed(run)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))


def streamer(ov: Any, put: Put) -> Any:
    class Streamer(ov.StreamerBase):  # type: ignore[misc]
        def write(self, token: int | list[int]) -> Any:
            put([token] if isinstance(token, int) else list(token))
            return ov.StreamingStatus.RUNNING

        def end(self) -> None:
            """The iterator ends when the pipeline returns."""

    return Streamer()


def open_engine(mode: str, model: Path, threads: int) -> OpenVino:
    if mode not in ("plain", "prompt-lookup"):
        raise unknown_mode(mode, ["plain", "prompt-lookup"])
    return OpenVino(model, threads, mode == "prompt-lookup")
