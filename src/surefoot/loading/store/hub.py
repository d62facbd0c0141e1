"""Fetching a model from the Hugging Face hub into the store.

Owns which files of a repository make a model and how the many errors of the hub's client become
one line. A download that broke is resumed by the next one (`download`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.errors import ModelError
from surefoot.loading.folder import INDEX, PART_NAME, WHOLE, part_name
from surefoot.loading.store.download import RemoteFile, fetch_file, num_bytes_begun
from surefoot.loading.store.models import MODEL_SUFFIX, ModelStore, Say

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

CONFIG = "config.json"
SHARD = r"model-\d{5}-of-\d{5}\.safetensors"
BESIDE_WEIGHTS = frozenset(
    {
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "chat_template.json",
    }
)
"""What a Hugging Face model's folder holds beside configuration and weights, as far as it is
read."""

CONNECT_TIMEOUT_S = 10.0
"""How long the first request may take before the hub counts as out of reach."""


@dataclass(frozen=True, slots=True)
class Hub:
    """`endpoint` None is the public hub."""

    endpoint: str | None = None

    def pull(self, name: str, file: str | None, store: ModelStore, say: Say) -> Path:
        """Fetch `file` of repository `name` and the other parts if it is split; without `file`,
        the only GGUF model the repository has, or else the whole Hugging Face model.

        Raises `ModelError`, one line, when the hub is out of reach or has it not, when there is a
        choice to make, or when what arrived has the wrong checksum.
        """
        wanted = choose_files(name, file, self._files(name))
        target = store.path_of(name, wanted[0].name)
        with store.incoming(name, say) as folder:
            missing = _missing(name, wanted, store)
            if missing:
                fetched = [(self._fetch(name, remote, folder, say), remote) for remote in missing]
                # The file that stands for the model comes last: until then there is no model.
                for path, remote in reversed(fetched):
                    store.adopt(path, name, remote.name)
        return target.parent if target.name == CONFIG else target

    def _fetch(self, name: str, remote: RemoteFile, folder: Path, say: Say) -> Path:
        verb = "resuming" if num_bytes_begun(remote, folder) else "fetching"
        say(f"{verb} {name}:{remote.name}")
        try:
            return fetch_file(name, remote, folder, self.endpoint)
        except ModelError:
            raise
        # The client raises its own errors and those of whichever HTTP library it was built on.
        except Exception as error:
            raise _as_model_error(f"{name}:{remote.name}", error) from error

    def _files(self, name: str) -> list[RemoteFile]:
        from huggingface_hub import HfApi

        try:
            api = HfApi(endpoint=self.endpoint)
            info = api.model_info(name, timeout=CONNECT_TIMEOUT_S, files_metadata=True)
        except Exception as error:  # as above
            raise _as_model_error(name, error) from error
        entries = {
            entry.rfilename: _remote_file(name, entry, info) for entry in info.siblings or ()
        }
        return list(entries.values())


def _missing(name: str, wanted: Sequence[RemoteFile], store: ModelStore) -> list[RemoteFile]:
    """What must be fetched: all of a folder's files unless its configuration is there (it came
    last); of a GGUF model the parts that are not there in full."""
    paths = {remote: store.path_of(name, remote.name) for remote in wanted}
    if wanted[0].name == CONFIG:
        return [] if paths[wanted[0]].is_file() else list(wanted)
    return [
        remote
        for remote, path in paths.items()
        if not path.is_file() or path.stat().st_size != (remote.size or path.stat().st_size)
    ]


def _remote_file(name: str, entry: RepoSibling, info: ModelInfo) -> RemoteFile:
    """What the hub says of one file. Raises `ModelError` if it is not what should be there."""
    file = RemoteFile(
        name=entry.rfilename,
        sha256=entry.lfs.sha256 if entry.lfs else None,
        size=entry.size,
        commit=info.sha,
        blob=None if entry.lfs else entry.blob_id,
    )
    for field, kinds in (("name", str), ("sha256", str), ("size", int), ("commit", str)):
        value = getattr(file, field)
        if not isinstance(value, kinds) and (value is not None or field == "name"):
            raise ModelError(f"{name}: the hub says that a file's {field} is {value!r}")
    is_git_name = isinstance(file.blob, str) and re.fullmatch("[0-9a-f]{40}", file.blob)
    return file if is_git_name else replace(file, blob=None)


def choose_files(name: str, file: str | None, files: Sequence[RemoteFile]) -> list[RemoteFile]:
    """The files of one model, first the one that stands for it: all parts of the GGUF model asked
    for, or of the only one; else a Hugging Face model's. Raises `ModelError` naming the choices."""
    models = _gguf_models([entry for entry in files if entry.name.endswith(MODEL_SUFFIX)])
    chosen = [parts for parts in models if file is None or file in [part.name for part in parts]]
    if len(chosen) == 1:
        _require_all_parts(name, chosen[0])
        return chosen[0]
    choices = ", ".join(parts[0].name for parts in models)
    if chosen:
        raise ModelError(f"{name} has several model files; name one as {name}:FILE, of {choices}")
    if file is not None:
        raise ModelError(f"{name} has no model file {file}; it has {choices or 'none'}")
    return _folder_model(name, files)


def _gguf_models(files: Sequence[RemoteFile]) -> list[list[RemoteFile]]:
    """GGUF files, the parts of a split one together, in order."""
    models: dict[tuple[str, str], list[RemoteFile]] = {}
    for entry in sorted(files, key=lambda entry: entry.name):
        match = PART_NAME.fullmatch(entry.name)
        key = (match["stem"], match["count"]) if match else (entry.name, "")
        models.setdefault(key, []).append(entry)
    return list(models.values())


def _require_all_parts(name: str, parts: Sequence[RemoteFile]) -> None:
    match = PART_NAME.fullmatch(parts[0].name)
    if match is None:
        return
    there = {part.name for part in parts}
    for number in range(1, int(match["count"]) + 1):
        part = part_name(match["stem"], number, int(match["count"]))
        if part not in there:
            raise ModelError(f"{name} has not all parts of {match['stem']}: {part} is missing")


def _folder_model(name: str, files: Sequence[RemoteFile]) -> list[RemoteFile]:
    """A Hugging Face model's files, its configuration first; nothing below sub-folders."""
    config = [entry for entry in files if entry.name == CONFIG]
    weights = _weights(files)
    if not config or not weights:
        raise ModelError(f"{name} holds neither a {MODEL_SUFFIX} file nor safetensors weights")
    return [*config, *weights, *(entry for entry in files if entry.name in BESIDE_WEIGHTS)]


def _weights(files: Sequence[RemoteFile]) -> list[RemoteFile]:
    """The weights once, and their index: some repositories have them in one file, or by another
    program's names, besides."""
    index = [entry for entry in files if entry.name == INDEX]
    weights = [entry for entry in files if re.fullmatch(r"[^/]+\.safetensors", entry.name)]
    shards = [entry for entry in weights if re.fullmatch(SHARD, entry.name)]
    whole = [entry for entry in weights if entry.name == WHOLE]
    return [*((index and shards) or whole or weights), *index]


def _as_model_error(what: str, error: Exception) -> ModelError:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):
        return ModelError(f"{what} is gated: accept its terms on the hub and set HF_TOKEN")
    if isinstance(error, RepositoryNotFoundError):
        return ModelError(f"{what} is not on the hub (or private: set HF_TOKEN)")
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ModelError(f"{what} is not in the store and cannot be fetched: {reason}")
