"""How a model is to be run, once the command line has been read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from surefoot.config import SchedulerConfig
from surefoot.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a model is to be run. `context` None: the model's own; `threads` None: one a core."""

    model: str
    context: int | None = None
    threads: int | None = None
    deterministic: bool = False
    pre_tokenizer: str | None = None
    quantize: str | None = None
    chat_template: Path | None = None


def scheduler_config(parallel: int, max_queue_depth: int, chunk: str) -> SchedulerConfig:
    """`chunk` is `--prefill-chunk-size`: "auto", or one number for busy and idle times alike."""
    if chunk == "auto":
        return SchedulerConfig(max_rows=parallel, max_queue_depth=max_queue_depth)
    if not chunk.isascii() or not chunk.isdigit():
        raise ConfigError(
            f"--prefill-chunk-size is {chunk!r}; it must be a number of tokens or auto",
            param="prefill_chunk_size",
        )
    size = int(chunk)
    return SchedulerConfig(
        max_rows=parallel, max_queue_depth=max_queue_depth, chunk_busy=size, chunk_alone=size
    )
