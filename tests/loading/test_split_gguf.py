"""Split GGUF files: all parts or a message that names the one at fault."""

from __future__ import annotations

import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest

from model_files import SmallModel, write_gguf
from surefoot.errors import ModelError
from surefoot.loading.folder import model_in
from surefoot.loading.open import load_model

MODEL = SmallModel("qwen3")


def part(folder: Path, number: int, stem: str = "x") -> Path:
    return folder / f"{stem}-{number:05d}-of-00003.gguf"


def write_parts(folder: Path, stem: str = "x", seed: int = 0, model: SmallModel = MODEL) -> Path:
    """Three parts as `gguf-split` makes them: metadata in the first, tensors in all."""
    folder.mkdir(exist_ok=True)
    tensors = model.tensors(seed)
    names = list(tensors)
    for number in range(1, 4):
        writer = gguf.GGUFWriter(str(part(folder, number, stem)), model.architecture)
        if number == 1:
            for key, value in model.metadata().items():
                (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
        writer.add_uint16("split.no", number - 1)
        writer.add_uint16("split.count", 3)
        writer.add_int32("split.tensors.count", len(names))
        for name in names[number - 1 :: 3]:
            writer.add_tensor(name, tensors[name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
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


def test_a_part_with_a_lost_name_is_refused(tmp_path: Path) -> None:
    folder = write_parts(tmp_path)
    renamed = part(folder, 1).rename(folder / "model.gguf")
    with pytest.raises(ModelError, match=r"model.gguf is one of 3 parts"):
        load_model(renamed)
