"""One file of a repository into a folder, taken up where an earlier try broke off.

The hub's client goes on after a broken connection, but only within one call: what a call that
failed has fetched is thrown away. So the unfinished file is kept here, under a name that says
which content it is the beginning of, and the client is told how much there is.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from surefoot.errors import ModelError


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository at one commit. `sha256` where the hub gives one, `size` in bytes
    where it says."""

    name: str
    sha256: str | None = None
    size: int | None = None
    commit: str | None = None

    @property
    def content_key(self) -> str:
        """Differs when the content may differ."""
        return (self.sha256 or self.commit or "main")[:16]


def unfinished_path(remote: RemoteFile, folder: Path) -> Path:
    """Where a broken download of the file waits."""
    return folder / f"{remote.name}.{remote.content_key}.unfinished"


def num_bytes_begun(remote: RemoteFile, folder: Path) -> int:
    """What can be gone on from; 0 where that is nothing, or cannot be the file's beginning."""
    path = unfinished_path(remote, folder)
    size = path.stat().st_size if path.is_file() else 0
    return size if remote.size is not None and size <= remote.size else 0


def finished_path(remote: RemoteFile, folder: Path) -> Path:
    """Where the whole file lies, its checksum found right."""
    return folder / f"{remote.name}.{remote.content_key}"


def fetch_file(repository: str, remote: RemoteFile, folder: Path, endpoint: str | None) -> Path:
    """The whole file below `folder`: found there, completed, or fetched.

    Raises `ModelError` for a wrong checksum, after which the next try begins afresh, and whatever
    the hub's client raises, after which it goes on.
    """
    finished = finished_path(remote, folder)
    if finished.is_file():
        return finished
    unfinished = unfinished_path(remote, folder)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    if num_bytes_begun(remote, folder) == 0:
        unfinished.unlink(missing_ok=True)
    _download(repository, remote, unfinished, endpoint)
    _require_checksum(unfinished, remote)
    os.replace(unfinished, finished)
    return finished


def _download(repository: str, remote: RemoteFile, path: Path, endpoint: str | None) -> None:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils._headers import build_hf_headers
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    url = hf_hub_url(repository, remote.name, revision=remote.commit, endpoint=endpoint)
    with open(path, "ab") as file:
        http_get(
            url,
            file,
            resume_size=file.tell(),
            headers=build_hf_headers(),
            expected_size=remote.size,
            displayed_filename=remote.name,
        )


def _require_checksum(path: Path, remote: RemoteFile) -> None:
    if remote.sha256 is None:
        return
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != remote.sha256:
        path.unlink()
        raise ModelError(f"{remote.name}: sha256 is {found}, the hub says {remote.sha256}")
