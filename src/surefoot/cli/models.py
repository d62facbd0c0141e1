"""`surefoot pull`, `list` and `rm`: the model store from the command line."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from surefoot.app.console import human_bytes, say
from surefoot.app.environment import model_hub, model_store
from surefoot.engine.graph_cache import clear
from surefoot.errors import ConfigError
from surefoot.loading.store.models import files_of
from surefoot.loading.store.resolve import resolve_model

Ref = Annotated[
    str, typer.Argument(help="'default', or a Hugging Face owner/name[:file].", metavar="MODEL")
]


def pull(ref: Ref = "default") -> None:
    """Fetch a model into the store, once; after that it is served offline."""
    path = resolve_model(ref, model_store(), hub=model_hub(), say=say)
    size = sum(file.stat().st_size for file in files_of(path))
    say(f"{ref} is ready: {path} ({human_bytes(size)})")


def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Names only.")] = False,
) -> None:
    """List the models in the store."""
    entries = model_store().entries()
    if as_json:
        rows = [{"model": e.ref, "size": e.size, "path": str(e.path)} for e in entries]
        print(json.dumps(rows, indent=1))
    elif quiet:
        for entry in entries:
            print(entry.ref)
    elif not entries:
        say("the store is empty; `surefoot pull default` fetches the default model")
    else:
        width = max(len(entry.ref) for entry in entries)
        for entry in entries:
            print(f"{entry.ref:{width}}  {human_bytes(entry.size):>9}  {entry.path}")


def rm(
    refs: Annotated[
        list[str] | None,
        typer.Argument(help="As `surefoot list -q` shows them.", metavar="[MODEL]..."),
    ] = None,
    graphs: Annotated[
        bool,
        typer.Option(
            "--graphs", help="Delete the packed graphs that are not in use; they are made anew."
        ),
    ] = False,
) -> None:
    """Delete models from the store."""
    if not refs and not graphs:
        raise ConfigError("name a model to delete, or --graphs")
    store = model_store()
    for ref in refs or ():
        unfinished = store.discard_incoming(ref.split(":")[0])
        if unfinished:
            say(f"removed an unfinished download of {ref} ({human_bytes(unfinished)})")
        if unfinished and store.find(ref) is None:
            continue
        entry = store.remove(ref)
        say(f"removed {entry.ref} ({human_bytes(entry.size)})")
    if graphs:
        cleared = clear(store.graphs)
        if cleared.freed or not cleared.num_kept:
            say(f"removed the packed graphs ({human_bytes(cleared.freed)})")
        if cleared.num_kept:
            say(
                f"kept {cleared.num_kept} in use ({human_bytes(cleared.kept)}): end the programs "
                "that serve them and try again"
            )
