"""The flags about KV memory, and what becomes of them once the model's sizes are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    pass
from surefoot.app.kv_plan import StorageBackend

Backend = Annotated[
    StorageBackend | None,
    typer.Option(
        "--decode-storage-backend",
        help="dense: a window a row. paged: also blocks that prompts which begin alike share; "
        "the default for more than one row.",
        show_default=False,
    ),
]


Budget = Annotated[
    str,
    typer.Option(
        "--kv-cache-budget",
        help="Bytes that windows and shared blocks may take (8G, 512M), half of the free memory, "
        "or no limit.",
        metavar="auto|BYTES|none",
    ),
]


NoPromptCache = Annotated[
    bool, typer.Option("--no-prompt-cache", help="Read every prompt whole; keep no blocks.")
]


EnablePreemption = Annotated[
    bool,
    typer.Option(
        "--enable-preemption",
        help="Set a running request aside for a waiting one of higher priority.",
    ),
]


QueueTimeout = Annotated[
    float,
    typer.Option(help="Seconds that a request may wait for its turn before a 503; 0: no limit."),
]
