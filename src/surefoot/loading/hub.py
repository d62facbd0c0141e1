"""Fetching a model file from the Hugging Face hub into the store.

Owns what the hub's client needs to be told and how its many errors become one line. A download
that broke is resumed by the next one.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot.errors import ModelError
from surefoot.loading.store import MODEL_SUFFIX, ModelStore

CONNECT_TIMEOUT_S = 10.0
"""How long the first request may take before the hub counts as out of reach."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository; `sha256` where the hub gives one."""

    name: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Hub:
    """`endpoint` None is the public hub."""

    endpoint: str | None = None

    def pull(
        self, name: str, file: str | None, store: ModelStore, say: Callable[[str], None]
    ) -> Path:
        """Fetch `file` of repository `name`; without `file`, the only model file it has.

        Raises `ModelError`, one line, when the hub is out of reach or has it not, when there is a
        choice to make, or when what arrived has the wrong checksum.
        """
        remote = choose_file(name, file, self._files(name))
        target = store.path_of(name, remote.name)
        with store.incoming(name) as folder:
            if target.is_file():
                return target
            say(f"fetching {name}:{remote.name}")
            path = self._download(name, remote.name, folder)
            _require_checksum(path, remote)
            return store.adopt(path, name, remote.name)

    def _files(self, name: str) -> list[RemoteFile]:
        from huggingface_hub import HfApi

        try:
            api = HfApi(endpoint=self.endpoint)
            info = api.model_info(name, timeout=CONNECT_TIMEOUT_S, files_metadata=True)
        # The client raises its own errors and those of whichever HTTP library it was built on.
        except Exception as error:
            raise _as_model_error(name, error) from error
        return [
            RemoteFile(entry.rfilename, entry.lfs.sha256 if entry.lfs else None)
            for entry in info.siblings or ()
        ]

    def _download(self, name: str, file: str, folder: Path) -> Path:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.utils.tqdm import disable_progress_bars

        if not sys.stderr.isatty():
            disable_progress_bars()
        try:
            return Path(hf_hub_download(name, file, local_dir=folder, endpoint=self.endpoint))
        except Exception as error:  # as above
            raise _as_model_error(f"{name}:{file}", error) from error


def choose_file(name: str, file: str | None, files: Sequence[RemoteFile]) -> RemoteFile:
    """The file asked for, or the only model file. Raises `ModelError` naming the choices."""
    models = [entry for entry in files if entry.name.endswith(MODEL_SUFFIX)]
    if not models:
        raise ModelError(f"{name} holds no {MODEL_SUFFIX} file, the only kind surefoot can fetch")
    chosen = [entry for entry in models if file in (None, entry.name)]
    if len(chosen) == 1:
        return chosen[0]
    choices = ", ".join(entry.name for entry in models)
    if not chosen:
        raise ModelError(f"{name} has no file {file}; it has {choices}")
    raise ModelError(f"{name} has several model files; name one as {name}:FILE, of {choices}")


def _as_model_error(what: str, error: Exception) -> ModelError:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):
        return ModelError(f"{what} is gated: accept its terms on the hub and set HF_TOKEN")
    if isinstance(error, RepositoryNotFoundError):
        return ModelError(f"{what} is not on the hub (or private: set HF_TOKEN)")
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ModelError(f"{what} is not in the store and cannot be fetched: {reason}")


def _require_checksum(path: Path, remote: RemoteFile) -> None:
    if remote.sha256 is None:
        return
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != remote.sha256:
        path.unlink()
        raise ModelError(f"{remote.name}: sha256 is {found}, the hub says {remote.sha256}")
