"""One file of a repository into a folder, taken up where an earlier try broke off.

The hub's client goes on after a broken connection, but only within one call: what a call that
failed has fetched is thrown away. So the unfinished file is kept here, under a name that says
which content it is the beginning of, and the client is told how much there is.
"""

from __future__ import annotations

import glob
import hashlib
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.errors import ModelError

CHUNK_BYTES = 256 << 10
"""What a connection that breaks can cost. The client's own 10 MB are thrown away whole, so that a
line which breaks sooner would never get anywhere."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository at one commit. `sha256` where the hub gives one, else `blob`, git's
    name of the content; `size` in bytes where it says."""

    name: str
    sha256: str | None = None
    size: int | None = None
    commit: str | None = None
    blob: str | None = None

    @property
    def content_key(self) -> str:
        """Differs when the content may differ. Hashed, since it becomes part of a path and the
        hub may say anything."""
        known = self.sha256 or self.blob or self.commit or "main"
        return hashlib.sha256(known.encode()).hexdigest()[:16]


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
    """The whole file below `folder`: found there, completed, or fetched. Beginnings of other
    contents of it are dropped.

    Raises `ModelError` for a wrong checksum or for more bytes than the hub said there are, after
    which the next try begins afresh, or where it does not say; and whatever the hub's client
    raises, after which the next try goes on.
    """
    if remote.size is None:
        raise ModelError(f"{remote.name}: the hub does not say how large it is")
    finished, unfinished = finished_path(remote, folder), unfinished_path(remote, folder)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    for other in _contents_begun(remote, folder):
        if other not in (finished, unfinished):
            other.unlink()
    if finished.is_file():
        return finished
    if num_bytes_begun(remote, folder) == 0:
        unfinished.unlink(missing_ok=True)
    _download_on(repository, remote, unfinished, endpoint)
    _require_checksum(unfinished, remote)
    os.replace(unfinished, finished)
    return finished


def _contents_begun(remote: RemoteFile, folder: Path) -> list[Path]:
    """Everything that is there of any content of this file."""
    begin = glob.escape(str(folder / remote.name))
    key = "[0-9a-f]" * len(remote.content_key)
    found = [*glob.glob(f"{begin}.{key}"), *glob.glob(f"{begin}.{key}.unfinished")]
    return [Path(path) for path in found]


def _download_on(repository: str, remote: RemoteFile, path: Path, endpoint: str | None) -> None:
    """`_download`, again as long as a try that breaks got further than the one before."""
    begun = -1
    while True:
        try:
            return _download(repository, remote, path, endpoint)
        except ModelError:
            path.unlink()
            raise
        except Exception:
            size = path.stat().st_size if path.is_file() else 0
            if size <= begun or size > (remote.size or 0):
                raise
            begun = size


def _download(repository: str, remote: RemoteFile, path: Path, endpoint: str | None) -> None:
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils._headers import build_hf_headers
    from huggingface_hub.utils.tqdm import disable_progress_bars

    constants.DOWNLOAD_CHUNK_SIZE = CHUNK_BYTES
    if not sys.stderr.isatty():
        disable_progress_bars()
    url = hf_hub_url(repository, remote.name, revision=remote.commit, endpoint=endpoint)
    assert remote.size is not None
    with _AtMost(path, remote.size) as file:
        http_get(
            url,
            file,
            resume_size=file.tell(),
            headers=build_hf_headers(),
            expected_size=remote.size,
            displayed_filename=remote.name,
        )


class _AtMost(io.BufferedWriter):
    """Adds to a file that must not outgrow `size` bytes. Raises `ModelError`."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(io.FileIO(path, "ab"))
        self._size = size

    def write(self, content: Any) -> int:
        if self.tell() + len(content) > self._size:
            raise ModelError(f"more arrives than the {self._size} bytes that the hub announced")
        return super().write(content)


def _require_checksum(path: Path, remote: RemoteFile) -> None:
    for kind, wanted in (("sha256", remote.sha256), ("git's sha1", remote.blob)):
        if wanted is None:
            continue
        found = _digest(path, kind)
        if found != wanted.lower():
            path.unlink()
            raise ModelError(f"{remote.name}: {kind} is {found}, the hub says {wanted}")
        return


def _digest(path: Path, kind: str) -> str:
    """Git names a file's content by what it is, how long it is, and the content."""
    digest = hashlib.sha256() if kind == "sha256" else hashlib.sha1(usedforsecurity=False)
    if kind != "sha256":
        digest.update(b"blob %d\0" % path.stat().st_size)
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
