"""The prompt-lookup flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.speculation.config import DraftPolicy

if TYPE_CHECKING:
    pass
from surefoot.app.generate_lookup import DEFAULT_DRAFT_MAX, GOODPUT_DRAFT_MAX

DraftPolicyName = Annotated[
    DraftPolicy | None,
    typer.Option(
        "--prompt-lookup-policy",
        help="How drafts are rationed: goodput prices each round first (the default of `serve`), "
        "graded and gated go by what was accepted (graded is the default elsewhere).",
        show_default=False,
    ),
]


DraftMax = Annotated[
    int | None,
    typer.Option(
        "--draft-max",
        help=f"Tokens of a draft at most (1 to 64); {DEFAULT_DRAFT_MAX} if not given, "
        f"{GOODPUT_DRAFT_MAX} for goodput.",
        show_default=False,
    ),
]


WidestDraft = Annotated[
    int, typer.Option("--draft-max", help="Tokens of a draft at most (1 to 64).")
]


NgramMin = Annotated[
    int,
    typer.Option(
        "--prompt-lookup-ngram-min", help="Shortest run of tokens looked up (goodput: 1)."
    ),
]


NgramMax = Annotated[
    int, typer.Option("--prompt-lookup-ngram-max", help="Longest run of tokens looked up.")
]
