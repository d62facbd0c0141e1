"""The model store: the folder where fetched models are kept.

Owns the layout below its root and nothing of what is in a model file:

    models/default/FILE          the default model
    models/OWNER/NAME/           files of a Hugging Face repository: GGUF files, or a whole model
    models/FILE                  a file that someone put there
    models/.incoming/            downloads under way, and their locks
    graphs/                      packed graphs, written by the engine
    costs/                       cost tables, written by calibration

A file in its place is whole: it was fetched below `.incoming` on the same file system and moved
in with one rename.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from surefoot.errors import ModelError, NotFoundError
from surefoot.loading.folder import PART_NAME, is_plain_name

Say = Callable[[str], None]
"""Takes one line for the person who waits."""
DEFAULT_NAME = "default"
MODEL_SUFFIX = ".gguf"


def silent(line: str) -> None:
    """A `Say` that says nothing."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """`ref` is what `-m` takes: "default", "owner/name:file" for a GGUF file, "owner/name" for a
    whole folder, or a bare file's name. `path` is the file (a split one's first part) or the
    folder, `size` that of all its files in bytes."""

    ref: str
    path: Path
    size: int


class ModelStore:
    """Models kept below `root`; nothing is written before something is fetched."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def graphs(self) -> Path:
        return self.root / "graphs"

    @property
    def costs(self) -> Path:
        return self.root / "costs"

    def path_of(self, name: str, file: str) -> Path:
        """Where `file` of `name` lives, whether it is there or not.

        Raises `ModelError` for a name that would leave the store.
        """
        parts = [*name.split("/"), *file.split("/")]
        if any(not is_plain_name(part) or "\\" in part or part[0] == "." for part in parts):
            raise ModelError(f"{name}:{file} is not a model name")
        return self.models.joinpath(*parts)

    def entries(self) -> list[StoredModel]:
        """Every stored model, by ref."""
        found = [
            StoredModel(self._ref(path), path, sum(map(_size, files_of(path))))
            for path in self.models.rglob("*")
            if _stands_for_model(path) and not self._is_hidden(path)
        ]
        return sorted(found, key=lambda entry: entry.ref)

    def _is_hidden(self, path: Path) -> bool:
        return any(part.startswith(".") for part in path.relative_to(self.models).parts)

    def _ref(self, path: Path) -> str:
        parts = path.relative_to(self.models).parts
        if parts[0] == DEFAULT_NAME:
            return DEFAULT_NAME
        if len(parts) < 3:
            return "/".join(parts)
        return "/".join(parts[:2]) + ":" + "/".join(parts[2:])

    def find(self, ref: str) -> StoredModel | None:
        """The stored model of that ref; "owner/name" alone serves where it has one file.

        Raises `ModelError` when "owner/name" has several.
        """
        entries = self.entries()
        for entry in entries:
            if entry.ref == ref:
                return entry
        of_name = [entry for entry in entries if entry.ref.split(":")[0] == ref]
        if len(of_name) > 1:
            choices = ", ".join(entry.ref for entry in of_name)
            raise ModelError(f"{ref} has several stored files; name one of {choices}")
        return of_name[0] if of_name else None

    def remove(self, ref: str) -> StoredModel:
        """Delete a stored model and the folders it leaves empty. Raises `NotFoundError`."""
        entry = self.find(ref)
        if entry is None:
            raise NotFoundError(f"{ref} is not in the store (`surefoot list` shows what is)")
        folder = entry.path if entry.path.is_dir() else entry.path.parent
        for path in (*files_of(entry.path), stamp_path(entry.path)):
            path.unlink(missing_ok=True)
        while folder != self.models and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent
        return entry

    def discard_incoming(self, name: str) -> int:
        """Delete what broken downloads of "owner/name" left; its bytes. Raises `ModelError` while
        another process is fetching it."""
        folder = self._incoming(name)
        if "/" not in name or not folder.is_dir():
            return 0
        try:
            with FileLock(folder.with_name(f"{folder.name}.lock"), timeout=0):
                size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                shutil.rmtree(folder, ignore_errors=True)
                return size
        except Timeout:
            raise ModelError(f"{name} is being fetched by another process") from None

    def _incoming(self, name: str) -> Path:
        return self.models / ".incoming" / name.replace("/", "--")

    @contextmanager
    def incoming(self, name: str, say: Say = silent) -> Iterator[Path]:
        """A folder to fetch `name` into, held by one process at a time.

        Others say so and wait. What a broken download left there, of this file or another of that
        name, is still there for the next one to resume; once nothing is, the folder goes.
        """
        folder = self._incoming(name)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(FileLock(folder.with_name(f"{folder.name}.lock")), name, say):
            folder.mkdir(exist_ok=True)
            yield folder
            if not any(path.is_file() for path in folder.rglob("*")):
                shutil.rmtree(folder)

    def adopt(self, source: Path, name: str, file: str) -> Path:
        """Move a whole file from an `incoming` folder to its place, at once."""
        target = self.path_of(name, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(source, target)
        return target


@contextmanager
def _locked(lock: FileLock, name: str, say: Say) -> Iterator[None]:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"another program is fetching {name}: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def files_of(path: Path) -> list[Path]:
    """The files of a stored model: all of a folder but the GGUF models beside it, all parts of a
    split GGUF file."""
    if path.is_dir():
        return [file for file in path.iterdir() if file.is_file() and not _is_gguf(file.name)]
    match = PART_NAME.fullmatch(path.name)
    if match is None:
        return [path]
    return sorted(path.parent.glob(f"{glob.escape(match['stem'])}-*-of-{match['count']}.gguf"))


def has_all_parts(path: Path) -> bool:
    """False for a split GGUF file some part of which is not there."""
    match = PART_NAME.fullmatch(path.name)
    return match is None or len(files_of(path)) >= int(match["count"])


def _stands_for_model(path: Path) -> bool:
    """A GGUF file that is no later part of another, or a folder with a configuration."""
    if path.is_dir():
        return (path / "config.json").is_file()
    match = PART_NAME.fullmatch(path.name)
    is_first = match is None or int(match["number"]) == 1
    return path.name.endswith(MODEL_SUFFIX) and is_first and path.is_file()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # a link to nowhere, or someone is removing it
        return 0


def _is_gguf(name: str) -> bool:
    return name.endswith((MODEL_SUFFIX, f"{MODEL_SUFFIX}.verified"))


def stamp_path(path: Path) -> Path:
    """The note beside a model file that says which bytes were verified, and when."""
    return path.with_name(path.name + ".verified")
