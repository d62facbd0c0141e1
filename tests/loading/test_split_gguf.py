"""Split GGUF files: all parts or a message that names the one at fault."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from support.model_files import SmallModel, write_gguf
from surefoot.errors import ModelError
from surefoot.loading.folder import model_in, part_name
from surefoot.loading.gguf.parts import open_parts
from surefoot.loading.open import load_model

MODEL = SmallModel("qwen3")


def part(folder: Path, number: int, stem: str = "x") -> Path:
    return folder / f"{stem}-{number:05d}-of-00003.gguf"


def write_part(
    path: Path,
    place: tuple[int, int],
    total: int,
    tensors: Mapping[str, NDArray[np.float32]],
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Part number and count, from one, in `place`."""
    writer = gguf.GGUFWriter(str(path), MODEL.architecture)
    for key, value in (metadata or {}).items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    writer.add_uint16("split.no", place[0] - 1)
    writer.add_uint16("split.count", place[1])
    writer.add_int32("split.tensors.count", total)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_parts(folder: Path, stem: str = "x", seed: int = 0, model: SmallModel = MODEL) -> Path:
    """Three parts as `gguf-split` makes them: metadata in the first, tensors in all."""
    folder.mkdir(exist_ok=True)
    tensors = model.tensors(seed)
    for number in range(1, 4):
        held = {name: tensors[name] for name in list(tensors)[number - 1 :: 3]}
        metadata = model.metadata() if number == 1 else None
        write_part(part(folder, number, stem), (number, 3), len(tensors), held, metadata)
    return folder


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_part_stands_for_all(number: int, tmp_path: Path) -> None:
    loaded = load_model(part(write_parts(tmp_path), number))
    whole = load_model(
        write_gguf(tmp_path / "whole.gguf", "qwen3", MODEL.metadata(), MODEL.tensors())
    )
    assert loaded.spec == whole.spec
    for name in whole.weights.names():
        np.testing.assert_array_equal(loaded.weights.values(name), whole.weights.values(name))


def test_a_folder_of_parts_is_its_first_part(tmp_path: Path) -> None:
    folder = write_parts(tmp_path)
    assert model_in(folder) == part(folder, 1)
    shutil.copy(part(folder, 1), part(folder, 1, "y"))
    with pytest.raises(ModelError, match=r"several model files; name one of x-00001-of-00003.gguf"):
        model_in(folder)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    folder = write_parts(tmp_path)
    part(folder, 3).unlink()
    for number in (1, 2):
        with pytest.raises(ModelError, match=r"x-00003-of-00003.gguf is missing: x has 3 parts"):
            load_model(part(folder, number))


def test_a_part_under_anothers_name_is_named(tmp_path: Path) -> None:
    folder = write_parts(tmp_path)
    shutil.copy(part(folder, 3), part(folder, 2))
    with pytest.raises(ModelError, match=r"x-00002-of-00003.gguf is no such part: split.no in it"):
        load_model(part(folder, 1))


def test_a_part_of_another_model_is_named(tmp_path: Path) -> None:
    folder = write_parts(tmp_path)
    other = write_parts(tmp_path / "other", model=SmallModel("qwen3", layers=3))
    shutil.copy(part(other, 2), part(folder, 2))
    message = "x-00002-of-00003.gguf belongs to another model than x-00001-of-00003.gguf"
    with pytest.raises(ModelError, match=message):
        load_model(part(folder, 1))


def test_the_odd_one_out_is_named_even_if_it_is_the_first(tmp_path: Path) -> None:
    folder = write_parts(tmp_path)
    other = write_parts(tmp_path / "other", model=SmallModel("qwen3", layers=3))
    shutil.copy(part(other, 1), part(folder, 1))
    message = (
        "x-00001-of-00003.gguf belongs to another model than x-00002-of-00003.gguf: "
        "the one counts 35 tensors, the other 24"
    )
    for number in (1, 2, 3):
        with pytest.raises(ModelError, match=message):
            load_model(part(folder, number))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["ab", "cd", "bc"],
            "x-00003-of-00003.gguf belongs to another model than x-00001-of-00003.gguf: "
            "both have tensor b",
        ),
        (
            ["bc", "ab", "cd"],
            "x-00001-of-00003.gguf belongs to another model than x-00002-of-00003.gguf: "
            "both have tensor b",
        ),
        (
            ["abc", "cde"],
            "x-00002-of-00002.gguf belongs to another model than x-00001-of-00002.gguf: "
            "both have tensor c",
        ),
        (
            ["ab", "cd"],
            "x-00001-of-00002.gguf: the parts hold 4 tensors together, not 6: "
            "one of them belongs to another model",
        ),
    ],
)
def test_the_part_that_overlaps_with_most_is_named(
    names: list[str], message: str, tmp_path: Path
) -> None:
    count = len(names)
    paths = [tmp_path / part_name("x", number, count) for number in range(1, count + 1)]
    for number, (path, held) in enumerate(zip(paths, names, strict=True), start=1):
        write_part(path, (number, count), 6, {name: np.zeros(4, np.float32) for name in held})
    with pytest.raises(ModelError) as caught:
        open_parts(paths[0])
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("name", "held", "message"),
    [
        (
            "blk.0.ffn_down.weight",
            "blk.0.ffn_down.weight",
            "tensor blk.0.ffn_down.weight has shape [3, 3], the metadata calls for [64, 96]",
        ),
        ("blk.0.ffn_down.weight", "blk.0.bias", "tensor blk.0.bias is no part of a qwen3 model"),
    ],
)
def test_a_part_with_a_tensor_that_does_not_fit_is_named(
    name: str, held: str, message: str, tmp_path: Path
) -> None:
    """Its number of tensors does not tell it from the right one."""
    folder = write_parts(tmp_path)
    tensors = MODEL.tensors()
    place = list(tensors).index(name) % 3 + 1
    changed = {other: tensors[other] for other in list(tensors)[place - 1 :: 3] if other != name}
    changed[held] = np.zeros((3, 3), np.float32)
    write_part(part(folder, place), (place, 3), len(tensors), changed)
    with pytest.raises(ModelError) as caught:
        load_model(part(folder, place % 3 + 1))
    assert caught.value.message.startswith(f"{part(folder, place).name}: {message}")


def test_a_part_with_a_lost_name_is_refused(tmp_path: Path) -> None:
    folder = write_parts(tmp_path)
    renamed = part(folder, 1).rename(folder / "model.gguf")
    with pytest.raises(ModelError, match=r"model.gguf is one of 3 parts"):
        load_model(renamed)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_parts_are_opened_in_order(number: int, tmp_path: Path) -> None:
    files = open_parts(part(write_parts(tmp_path), number))
    assert [file.name for file in files] == [part(tmp_path, n).name for n in (1, 2, 3)]
    assert [len(file.tensors) for file in files] == [8, 8, 8]
    assert [file.metadata["split.no"] for file in files] == [0, 1, 2]
    assert "qwen3.block_count" in files[0].metadata


def test_a_whole_file_is_its_only_part(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "whole.gguf", "qwen3", MODEL.metadata(), MODEL.tensors())
    (file,) = open_parts(path)
    assert (file.name, len(file.tensors)) == ("whole.gguf", 24)


def test_a_part_that_does_not_say_which_it_is(tmp_path: Path) -> None:
    path = tmp_path / part_name("x", 1, 1)
    write_gguf(path, "qwen3", MODEL.metadata(), MODEL.tensors())
    with pytest.raises(
        ModelError, match=r"x-00001-of-00001\.gguf is no such part: split.no in it is"
    ):
        open_parts(path)
