"""The flags that several commands share, and what becomes of them before a model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.flags.names import within

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
