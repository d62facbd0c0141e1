"""The flags that several commands share, and what becomes of them before a model is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.flag_names import within
from surefoot.config import SchedulerConfig
from surefoot.errors import ConfigError

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="A GGUF file, a model's folder, owner/name[:file] or 'default'.",
        metavar="MODEL",
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--ctx",
        "--context-length",
        help="Tokens of context a request may use; the model's own by default.",
        show_default=False,
        callback=within(2),
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Threads of one forward; one a core by default.",
        show_default=False,
        callback=within(1, 1024),
    ),
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="Texts do not depend on what else is being served, at 1.2 to 1.5 times the step time.",
    ),
]
PreTokenizer = Annotated[
    str | None,
    typer.Option(
        help="How text is cut before BPE, for a file that does not say (tokenizer.ggml.pre).",
        metavar="NAME",
        show_default=False,
    ),
]
ChatTemplateFile = Annotated[
    Path | None,
    typer.Option(
        "--chat-template",
        help="A Jinja file to write conversations by, instead of the model's own.",
        metavar="FILE",
        show_default=False,
    ),
]
QuantizeTo = Annotated[
    str | None,
    typer.Option(
        "--quantize",
        help="q8, q4 or none: what becomes of weights that come as floats. By default a Hugging "
        "Face folder goes to q8 and a GGUF file stays as it is.",
        metavar="BITS",
        show_default=False,
    ),
]
Temperature = Annotated[
    float, typer.Option("--temp", "--temperature", help="0 takes the likeliest token.", min=0.0)
]
TopP = Annotated[float, typer.Option(help="Keep the likeliest tokens of this share.", max=1.0)]
TopK = Annotated[int, typer.Option(help="Keep this many tokens; 0 keeps all.", min=0)]
Seed = Annotated[
    int | None,
    typer.Option(help="Of the random draws; by default another each time.", show_default=False),
]
System = Annotated[str | None, typer.Option(help="A system message.", show_default=False)]


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
