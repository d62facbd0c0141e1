"""Split GGUF files: `NAME-00001-of-00003.gguf` and its fellows, opened as one.

The first part holds the metadata; each says how many parts there are, which it is, and how many
tensors all of them have together.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from surefoot.errors import ModelError
from surefoot.loading.folder import PART_NAME, part_name
from surefoot.loading.gguf.reader import GgufFile


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
    """Raises for the part that differs from most, or overlaps with most. Parts hold no more about
    the model than tensors and their number: one of another model with the same tensors passes."""
    totals = [file.metadata.get("split.tensors.count") for file in files]
    usual, _ = Counter(totals).most_common(1)[0]
    for file, total in zip(files, totals, strict=True):
        if total != usual:
            other = files[totals.index(usual)]
            raise ModelError(
                f"{file.name} belongs to another model than {other.name}: the one counts "
                f"{total} tensors, the other {usual}"
            )
    _refuse_overlap(files)
    found = sum(len(file.tensors) for file in files)
    if found != usual:
        raise ModelError(
            f"{files[0].name}: the parts hold {found} tensors together, not {usual}: one of them "
            "belongs to another model"
        )


def _refuse_overlap(files: list[GgufFile]) -> None:
    shared: dict[tuple[str, str], str] = {}
    owners: dict[str, list[str]] = {}
    for file in files:
        for tensor in file.tensors:
            for owner in owners.setdefault(tensor.name, []):
                shared.setdefault((file.name, owner), tensor.name)
            owners[tensor.name].append(file.name)
    if not shared:
        return
    overlaps = Counter(name for pair in shared for name in pair)
    pair = max(shared, key=lambda pair: max(overlaps[name] for name in pair))
    foreign = max(pair, key=lambda name: overlaps[name])
    other = pair[1] if foreign == pair[0] else pair[0]
    raise ModelError(
        f"{foreign} belongs to another model than {other}: both have tensor {shared[pair]}"
    )
