"""Reading safetensors files: a JSON header, then plain arrays, mapped and never copied whole.

The format is eight bytes of header length, the header (name to dtype, shape and byte range), the
bytes. Reading it here rather than by the `safetensors` package gives numpy views of BF16 too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import ModelError
from surefoot.loading.folder import INDEX, WHOLE, is_plain_name

ITEM_TYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
}
"""The types read; a bfloat16 comes as its 16 bits."""

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One array: `raw` has the tensor's shape, its items as in `ITEM_TYPES`."""

    dtype: str
    raw: NDArray[Any]


def read_folder(folder: Path) -> tuple[dict[str, StoredTensor], bytes]:
    """All tensors of a model's folder and, for a fingerprint, every file's header, size and time.

    Raises `ModelError` naming the file at fault: none there, a shard missing or cut short, a
    header that is no header.
    """
    tensors: dict[str, StoredTensor] = {}
    identity = bytearray()
    for path in _files(folder):
        header, data = _open(path)
        for name, entry in header.items():
            if name != "__metadata__":
                tensors[name] = _tensor(path.name, name, entry, data)
        stat = path.stat()
        identity += data[: _data_start(data)].tobytes()
        identity += f"{path.name} {stat.st_size} {stat.st_mtime_ns}".encode()
    return tensors, bytes(identity)


def _files(folder: Path) -> Iterable[Path]:
    if (folder / INDEX).is_file():
        names = sorted(set(_weight_map(folder / INDEX).values()))
        for name in names:
            if not (folder / name).is_file():
                raise ModelError(f"{folder.name}: {name} is missing; {INDEX} calls for it")
        return [folder / name for name in names]
    if (folder / WHOLE).is_file():
        return [folder / WHOLE]
    files = sorted(folder.glob("*.safetensors"))
    if len(files) == 1:
        return files
    if files:
        raise ModelError(f"{folder.name} has {len(files)} safetensors files and no {INDEX}")
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        raise ModelError(
            f"{folder.name} holds pickled weights, which run code when read; "
            "surefoot reads safetensors only"
        )
    raise ModelError(f"{folder.name} holds no safetensors file")


def _weight_map(path: Path) -> dict[str, str]:
    try:
        names = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        plain = {str(tensor): str(file) for tensor, file in names.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path.name} cannot be read: {error}") from error
    for file in plain.values():
        if not is_plain_name(file):
            raise ModelError(f"{path.name} names {file[:80]}, which is outside its folder")
    return plain


def _data_start(data: NDArray[np.uint8]) -> int:
    return 8 + int.from_bytes(data[:8].tobytes(), "little")


def _open(path: Path) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    size = path.stat().st_size
    if size < 8:
        raise ModelError(f"{path.name} is no safetensors file: it has {size} bytes")
    data = np.memmap(path, dtype=np.uint8, mode="r")
    start = _data_start(data)
    if start > min(size, MAX_HEADER_BYTES):
        raise ModelError(f"{path.name} is no whole safetensors file: its header ends at {start}")
    try:
        header = json.loads(data[8:start].tobytes())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path.name} is no safetensors file: {error}") from error
    if not isinstance(header, dict):
        raise ModelError(f"{path.name} is no safetensors file: its header is a list")
    return header, data


def _tensor(file: str, name: str, entry: Any, data: NDArray[np.uint8]) -> StoredTensor:
    try:
        dtype, shape = str(entry["dtype"]), tuple(int(size) for size in entry["shape"])
        start = _data_start(data)
        begin, end = (start + int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{file}: the entry of tensor {name} is wrong: {error}") from error
    if dtype not in ITEM_TYPES:
        known = ", ".join(ITEM_TYPES)
        raise ModelError(
            f"{file}: tensor {name} has type {dtype}, which is not supported; "
            f"supported types: {known}"
        )
    if end > len(data):
        raise ModelError(
            f"{file}: tensor {name} ends at byte {end}, the file has {len(data)}: it is truncated"
        )
    item = ITEM_TYPES[dtype]
    if (
        begin < start
        or min(shape, default=1) < 0
        or end - begin != item.itemsize * math.prod(shape)
    ):
        raise ModelError(f"{file}: tensor {name} has {end - begin} bytes for shape {list(shape)}")
    # Offsets need not be aligned; frombuffer-like views of unaligned bytes are fine for copies.
    raw = np.ndarray(shape, dtype=item, buffer=data.data, offset=begin)
    return StoredTensor(dtype, raw)
