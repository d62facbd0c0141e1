"""Split GGUF files: `NAME-00001-of-00003.gguf` and its fellows, opened as one.

The first part holds the metadata; each says how many parts there are, which it is, and how many
tensors all of them have together.
"""

from __future__ import annotations

from pathlib import Path

from surefoot.errors import ModelError
from surefoot.loading.folder import PART_NAME, part_name
from surefoot.loading.gguf_reader import GgufFile


def open_parts(path: Path) -> list[GgufFile]:
    """The file, or all parts of the split file that it is a part of, first part first.

    Raises `ModelError` naming a part that is missing, unreadable or of another model.
    """
    match = PART_NAME.fullmatch(path.name)
    if match is None:
        file = GgufFile(path)
        _refuse_renamed(file)
        return [file]
    count = int(match["count"])
    files = []
    for number in range(1, count + 1):
        part = path.with_name(part_name(match["stem"], number, count))
        if not part.exists():
            raise ModelError(f"{part.name} is missing: {match['stem']} has {count} parts")
        file = GgufFile(part)
        _require(file, "split.no", number - 1)
        _require(file, "split.count", count)
        files.append(file)
    _check_together(files)
    return files


def _refuse_renamed(file: GgufFile) -> None:
    count = file.metadata.get("split.count", 0)
    if isinstance(count, int) and count > 1:
        raise ModelError(
            f"{file.name} is one of {count} parts, but its name does not say where the others "
            "are: give it back its name, ...-00001-of-0000N.gguf"
        )


def _require(file: GgufFile, key: str, wanted: int) -> None:
    found = file.metadata.get(key)
    if found != wanted:
        raise ModelError(
            f"{file.name} is no such part: {key} in it is {found}, by its name it must be {wanted}"
        )


def _check_together(files: list[GgufFile]) -> None:
    first = files[0]
    total = first.metadata.get("split.tensors.count")
    seen: dict[str, str] = {}
    for file in files:
        if file.metadata.get("split.tensors.count") != total:
            raise ModelError(
                f"{file.name} belongs to another model than {first.name}: the one counts "
                f"{file.metadata.get('split.tensors.count')} tensors, the other {total}"
            )
        for tensor in file.tensors:
            if tensor.name in seen:
                raise ModelError(
                    f"{file.name} belongs to another model than {seen[tensor.name]}: "
                    f"both have tensor {tensor.name}"
                )
            seen[tensor.name] = file.name
    if len(seen) != total:
        raise ModelError(f"{first.name}: the parts hold {len(seen)} tensors together, not {total}")
