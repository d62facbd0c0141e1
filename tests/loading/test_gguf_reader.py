"""Reading GGUF files: metadata as the `gguf` package reads it, and files that are no whole ones."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given, settings
from hypothesis import strategies as st

from support.tiny_models import TinyModel, TinyShape, text_model
from surefoot.errors import ModelError
from surefoot.loading.gguf.model import load_gguf
from surefoot.loading.gguf.reader import GgufFile

SMALL = TinyShape(vocab=32, hidden=32, layers=1, heads=2, kv_heads=1, mlp=32, context=64)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "whole.gguf"
    return TinyModel(linear=Type.Q4_1, shape=SMALL).write(path).read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


def complaint(path: Path) -> str:
    """The file is refused with one line that names it and tells no folder."""
    with pytest.raises(ModelError) as caught:
        load_gguf(path)
    message = caught.value.message
    assert message.startswith(f"{path.name}: ")
    assert "\n" not in message
    assert str(path.parent) not in message
    return message


def read_all(path: Path) -> str | None:
    """Load every tensor; what the file was refused with, if it was."""
    try:
        model = load_gguf(path)
        for name in model.weights.names():
            model.weights.load(name)
    except ModelError as error:
        return error.message
    return None


def damaged_file(folder: Path, content: bytes) -> Path:
    """A new file each time: one that is still mapped must not change under its reader."""
    path = folder / "damaged.gguf"
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    return path


def write_every_kind(path: Path) -> Path:
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_uint8("number.uint8", 200)
    writer.add_int8("number.int8", -100)
    writer.add_uint16("number.uint16", 60000)
    writer.add_int16("number.int16", -30000)
    writer.add_uint32("number.uint32", 4_000_000_000)
    writer.add_int32("number.int32", -2_000_000_000)
    writer.add_uint64("number.uint64", 2**63)
    writer.add_int64("number.int64", -(2**62))
    writer.add_float32("number.float32", 0.1)
    writer.add_float64("number.float64", 0.1)
    writer.add_bool("number.bool", True)
    writer.add_string("text.plain", "é 漢字 🔥\n")
    writer.add_string("text.empty", "")
    writer.add_array("list.strings", ["", "a", "é", "漢字", "x" * 300])
    writer.add_array("list.ints", [1, -2, 3])
    writer.add_array("list.floats", [0.5, 0.1])
    writer.add_array("list.bools", [True, False])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_is_what_the_package_reads(tmp_path: Path) -> None:
    path = write_every_kind(tmp_path / "kinds.gguf")
    expected = {
        name: field.contents()
        for name, field in gguf.GGUFReader(path).fields.items()
        if not name.startswith("GGUF.")
    }
    found = GgufFile(path).metadata
    assert found == expected
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in expected.items()
    }
    assert found["number.uint64"] == 2**63
    assert found["list.strings"] == ["", "a", "é", "漢字", "x" * 300]


def test_metadata_and_tensors_of_a_model_are_what_the_package_reads(tmp_path: Path) -> None:
    path = text_model().write(tmp_path / "text.gguf")
    theirs, ours = gguf.GGUFReader(path), GgufFile(path)
    assert (
        ours.metadata["tokenizer.ggml.tokens"] == theirs.fields["tokenizer.ggml.tokens"].contents()
    )
    assert ours.metadata["llama.rope.freq_base"] == 10000.0
    assert [(t.name, t.tensor_type, t.data_offset, t.n_bytes) for t in ours.tensors] == [
        (t.name, t.tensor_type, t.data_offset, t.n_bytes) for t in theirs.tensors
    ]
    assert all(
        a.data.tobytes() == b.data.tobytes()
        for a, b in zip(ours.tensors, theirs.tensors, strict=True)
    )


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8, 15, 16, 23, 24, 31, 32])
def test_a_file_cut_in_its_first_bytes(scratch: Path, whole: bytes, length: int) -> None:
    complaint(damaged_file(scratch, whole[:length]))


@settings(deadline=None)
@given(data=st.data())
def test_a_file_cut_anywhere(scratch: Path, whole: bytes, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(whole) - 1))
    complaint(damaged_file(scratch, whole[:length]))


def test_a_file_without_its_last_byte_names_the_tensor(scratch: Path, whole: bytes) -> None:
    size = len(whole)
    assert complaint(damaged_file(scratch, whole[:-1])) == (
        f"damaged.gguf: tensor blk.0.ffn_down.weight ends at byte {size}, "
        f"the file has {size - 1}: it is truncated"
    )


@settings(deadline=None)
@given(data=st.data())
def test_any_damage_to_the_header_is_a_model_error_or_harmless(
    scratch: Path, whole: bytes, data: st.DataObject
) -> None:
    header = GgufFile(damaged_file(scratch, whole)).data_offset
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, header - 1))
        damaged[position] = data.draw(st.sampled_from([0, 1, 2, 8, 9, 0x7F, 0x80, 0xFF]))
    path = damaged_file(scratch, bytes(damaged))
    message = read_all(path)
    assert message is None or (message.startswith("damaged.gguf: ") and "\n" not in message)


def test_no_such_file(tmp_path: Path) -> None:
    assert complaint(tmp_path / "absent.gguf") == "absent.gguf: no such file"


def test_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder.gguf"
    folder.mkdir()
    assert complaint(folder) == "folder.gguf: cannot be read (Is a directory)"


def test_another_kind_of_file(scratch: Path, whole: bytes) -> None:
    assert complaint(damaged_file(scratch, b"PK\x03\x04" + whole[4:])) == (
        "damaged.gguf: not a readable GGUF file (GGUF magic invalid)"
    )


def test_a_version_that_is_not_known(scratch: Path, whole: bytes) -> None:
    message = complaint(damaged_file(scratch, whole[:4] + struct.pack("<I", 9) + whole[8:]))
    assert "version 9" in message


def test_a_file_of_the_other_byte_order(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "big.gguf"), "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_block_count(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert complaint(tmp_path / "big.gguf") == "big.gguf: the file is of the other byte order"


def test_text_that_is_not_utf8(scratch: Path, whole: bytes) -> None:
    """In a scalar it is damage; in a vocabulary single bytes may stand alone."""
    damaged = whole.replace(b"llama", b"ll\xffma", 1)
    assert damaged != whole
    assert "not a readable GGUF file" in complaint(damaged_file(scratch, damaged))
