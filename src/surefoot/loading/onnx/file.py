"""Reading an ONNX file's nodes and stored tensors, mapped and never copied whole.

The format is protobuf's wire format (onnx.proto): fields of a number and a value, messages within
messages. Read here rather than by the `onnx` package, because loaders hand out views of mapped
files and know nothing of graphs being built. What runs or what a node means is not known here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import ModelError
from surefoot.loading.folder import is_plain_name

Buffer = memoryview

ITEM_TYPES: dict[int, tuple[str, np.dtype[Any]]] = {
    1: ("F32", np.dtype("<f4")),
    2: ("U8", np.dtype("u1")),
    7: ("I64", np.dtype("<i8")),
    10: ("F16", np.dtype("<f2")),
    16: ("BF16", np.dtype("<u2")),
}
"""TensorProto's `data_type` to the type's name and items; a bfloat16 comes as its 16 bits."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_VARINT_BYTES = 10
MAX_DIMENSIONS = 8
"""More than any weight has; numpy takes 64."""


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """One operation; an input that is left out is an empty name."""

    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, int | float | str]

    def input(self, index: int) -> str:
        return self.inputs[index] if index < len(self.inputs) else ""

    def output(self, index: int) -> str:
        return self.outputs[index] if index < len(self.outputs) else ""


@dataclass(slots=True)
class OnnxGraph:
    """`file` is the base name, for complaints. Tensors are opened when asked for."""

    file: str
    folder: Path
    nodes: list[OnnxNode] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    protos: dict[str, Buffer] = field(default_factory=dict)

    def shape(self, name: str) -> tuple[int, ...]:
        """Raises `ModelError` for a name that is no stored tensor."""
        return _Tensor.read(self, name).dims

    def type_of(self, name: str) -> str:
        """ "F32", "U8", ... Raises `ModelError` for other types than are read."""
        return _Tensor.read(self, name).item[0]

    def whole(self, node: OnnxNode, key: str, default: int) -> int:
        """An integer attribute. Raises `ModelError` for one that is something else."""
        value = node.attributes.get(key, default)
        if not isinstance(value, int):
            raise ModelError(f"{self.file}: {key} of {node.name} is {value!r}, not an integer")
        return value

    def number(self, node: OnnxNode, key: str, default: float) -> float:
        """A finite attribute. Raises `ModelError` for one that is something else."""
        value = node.attributes.get(key, default)
        if isinstance(value, str) or not math.isfinite(value):
            raise ModelError(f"{self.file}: {key} of {node.name} is {value!r}, not a number")
        return float(value)

    def data_files(self) -> list[Path]:
        """The files beside the graph that stored tensors lie in, by name. Raises `ModelError` for
        one that is not there, or outside the folder."""
        tensors = (_Tensor.read(self, name) for name in self.protos)
        return sorted({tensor.place(self) for tensor in tensors if tensor.external})

    def array(self, name: str) -> NDArray[Any]:
        """A view of the mapped file. Raises `ModelError`: not stored, a type that is not read,
        data outside the folder or cut short."""
        tensor = _Tensor.read(self, name)
        data = tensor.data(self)
        wanted = math.prod(tensor.dims) * tensor.item[1].itemsize
        if len(data) != wanted:
            raise ModelError(
                f"{self.file}: tensor {name} has {len(data)} bytes for shape {list(tensor.dims)}"
            )
        return np.ndarray(tensor.dims, dtype=tensor.item[1], buffer=data)


def read_onnx(path: Path) -> OnnxGraph:
    """Raises `ModelError` for what is no ONNX file, or a damaged one."""
    graph = OnnxGraph(path.name, path.parent)
    try:
        for number, value in _fields(_mapped(path)):
            if number == 7:
                _read_graph(_message(value), graph)
            elif number == 25:
                raise ValueError("it defines operations of its own")
    except (ValueError, IndexError, struct.error) as error:
        raise ModelError(f"{path.name} is no whole ONNX file: {error}") from error
    if not graph.nodes:
        raise ModelError(f"{path.name} is no ONNX file: there is no graph in it")
    return graph


def _mapped(path: Path) -> Buffer:
    """The file's bytes. Raises `ModelError` if there is none or it is empty."""
    try:
        return np.memmap(require_file(path), dtype=np.uint8, mode="r").data
    except (OSError, ValueError) as error:
        raise ModelError(f"{path.name} cannot be read: {error}") from error


def require_file(path: Path) -> Path:
    """`path` itself. Raises `ModelError` if it is missing, or a folder, or a pipe."""
    if not path.is_file():
        raise ModelError(f"{path.name} cannot be read: it is missing, or no file")
    return path


def _fields(data: Buffer) -> Iterator[tuple[int, int | Buffer]]:
    """Every field of one message: its number, and an integer or its bytes (fixed-size numbers and
    strings too). Raises `ValueError` or `IndexError` where the bytes are no message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"a field of kind {kind} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"a field of {size} bytes at byte {at} of {len(data)}")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: Buffer, at: int) -> tuple[int, int]:
    """The number at byte `at`, seven bits a byte, and where the next thing begins."""
    value = 0
    for place in range(MAX_VARINT_BYTES):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError(f"a number of more than {MAX_VARINT_BYTES} bytes at byte {at}")


def _message(value: int | Buffer) -> Buffer:
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value


def _text(value: int | Buffer) -> str:
    return bytes(_message(value)).decode("utf-8")


def _signed(value: int | Buffer) -> int:
    if not isinstance(value, int):
        raise ValueError("bytes where a number should be")
    return value - (1 << 64) if value >> 63 else value


def _read_graph(data: Buffer, graph: OnnxGraph) -> None:
    for number, value in _fields(data):
        if number == 1:
            graph.nodes.append(_read_node(_message(value)))
        elif number == 5:
            name = _name_of(_message(value), 8)
            if name in graph.protos:
                raise ValueError(f"two tensors are stored as {name}")
            graph.protos[name] = _message(value)
        elif number in (11, 12):
            names = graph.inputs if number == 11 else graph.outputs
            names.append(_name_of(_message(value), 1))


def _name_of(data: Buffer, field_number: int) -> str:
    names = [_text(value) for number, value in _fields(data) if number == field_number]
    return names[-1] if names else ""


def _read_node(data: Buffer) -> OnnxNode:
    texts: dict[int, list[str]] = {1: [], 2: [], 3: [], 4: [], 7: []}
    attributes: dict[str, int | float | str] = {}
    for number, value in _fields(data):
        if number in texts:
            texts[number].append(_text(value))
        elif number == 5:
            name, content = _read_attribute(_message(value))
            if content is not None:
                attributes[name] = content
    name, op, domain = ("".join(texts[number]) for number in (3, 4, 7))
    return OnnxNode(name, op, domain, tuple(texts[1]), tuple(texts[2]), attributes)


def _read_attribute(data: Buffer) -> tuple[str, int | float | str | None]:
    """Numbers and strings; other kinds give None."""
    name, content = "", None
    found: int | float | str | None = None
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == 2:
            (content,) = struct.unpack("<f", _message(value))
            found = float(content)
        elif number == 3:
            found = _signed(value)
        elif number == 4:
            found = bytes(_message(value)).decode("utf-8", "replace")
    return name, found


@dataclass(frozen=True, slots=True)
class _Tensor:
    """One TensorProto: where its data is."""

    name: str
    dims: tuple[int, ...]
    item: tuple[str, np.dtype[Any]]
    raw: Buffer | None
    external: Mapping[str, str]

    @classmethod
    def read(cls, graph: OnnxGraph, name: str) -> _Tensor:
        if name not in graph.protos:
            raise ModelError(f"{graph.file}: {name} is computed or missing, not stored")
        dims: list[int] = []
        kind, raw = 0, None
        external: dict[str, str] = {}
        try:
            for number, value in _fields(graph.protos[name]):
                if number == 1:
                    dims += [_signed(value)] if isinstance(value, int) else _packed(value)
                elif number == 2:
                    kind = _signed(value)
                elif number in (4, 9):
                    # Packed float_data is, byte for byte, what raw_data would be.
                    raw = _message(value)
                elif number == 13:
                    external |= [_entry(_message(value))]
        except (ValueError, IndexError) as error:
            raise ModelError(f"{graph.file}: tensor {name} is damaged: {error}") from error
        if kind not in ITEM_TYPES:
            raise ModelError(f"{graph.file}: tensor {name} has data type {kind}, not supported")
        if min(dims, default=1) < 1 or len(dims) > MAX_DIMENSIONS:
            raise ModelError(f"{graph.file}: tensor {name} has shape {dims[: MAX_DIMENSIONS + 1]}")
        return cls(name, tuple(dims), ITEM_TYPES[kind], raw, external)

    def data(self, graph: OnnxGraph) -> Buffer:
        if not self.external:
            return self.raw if self.raw is not None else memoryview(b"")
        path = self.place(graph)
        data = _mapped(path)
        begin = self._position(graph, "offset", 0)
        end = begin + self._position(graph, "length", max(0, len(data) - begin))
        if end > len(data):
            raise ModelError(
                f"{path.name}: tensor {self.name} ends at byte {end}, the file has {len(data)}: "
                "it is truncated"
            )
        return data[begin:end]

    def place(self, graph: OnnxGraph) -> Path:
        """The file that an external tensor lies in."""
        location = self.external.get("location", "")
        if not location or not is_plain_name(location):
            raise ModelError(
                f"{graph.file}: tensor {self.name} lies in {location[:80]!r}, outside its folder"
            )
        return require_file(graph.folder / location)

    def _position(self, graph: OnnxGraph, key: str, default: int) -> int:
        text = self.external.get(key)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise ModelError(f"{graph.file}: {key} of tensor {self.name} is {text[:40]!r}")
        return int(text)


def _packed(data: Buffer) -> list[int]:
    values, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(_signed(value))
    return values


def _entry(data: Buffer) -> tuple[str, str]:
    return _name_of(data, 1), _name_of(data, 2)
