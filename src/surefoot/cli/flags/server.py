"""The flags of `surefoot serve` alone. Their defaults stand where the command is."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from surefoot.app.server_lookup import DraftKind


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="0 takes any free one.")]
Alias = Annotated[
    list[str] | None,
    typer.Option(help="A name clients may use for the model; the first is the one shown."),
]
Parallel = Annotated[int, typer.Option(help="Requests decoded at once (1 to 64).")]
PrefillChunkSize = Annotated[
    str, typer.Option(help="Prompt tokens read in one step, or auto.", metavar="N|auto")
]
ApiKey = Annotated[list[str] | None, typer.Option(help="Ask clients for this key (repeatable).")]
ApiKeyFile = Annotated[Path | None, typer.Option(help="Keys, one a line; # begins a comment.")]
CorsOrigin = Annotated[
    list[str] | None,
    typer.Option(help="A web page's origin that may call this server (repeatable)."),
]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(help="A further Host header to answer to (repeatable; when on loopback)."),
]
MaxQueueDepth = Annotated[int, typer.Option(help="Requests that may wait.")]
DrainTimeout = Annotated[
    float, typer.Option(help="Seconds that replies may take to finish at the end.")
]
Kind = Annotated[DraftKind, typer.Option(help="How tokens are proposed.")]
MaxBatch = Annotated[
    int, typer.Option(help="Propose while at most this many rows decode (1 to 64).")
]
MinTokensPerRound = Annotated[
    str,
    typer.Option(
        help="What a draft must bring: priced on this machine, nothing (then graded unless a "
        "policy is given), or X tokens a round (gated).",
        metavar="auto|off|X",
    ),
]
Adaptive = Annotated[
    bool,
    typer.Option(
        "--prompt-lookup-adaptive/--no-prompt-lookup-adaptive",
        help="Stop where drafts miss; without it every match proposes in full.",
    ),
]
Level = Annotated[LogLevel, typer.Option(help="What to log.")]
Format = Annotated[LogFormat, typer.Option(help="How to log it.")]
