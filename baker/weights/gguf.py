"""A GGUF file as a `WeightSource`.

The header is parsed here, since `gguf.GGUFReader` takes ten seconds and 700 MB for a vocabulary of
262144 tokens; the `gguf` package dequantizes. Layout: magic, version, two counts,
the keys and values, the tensors' names, dimensions (innermost first), types and offsets, then the
data, aligned. Little-endian, versions 2 and 3.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Literal

import gguf
import numpy as np
from typing_extensions import override

from hearthd.baker.weights import gguf_integers
from hearthd.baker.weights.source import (
    MAX_AXES,
    BadFile,
    NoSuchTensor,
    UnsupportedType,
    WeightSource,
    block_shapes,
    read_array,
    require_unchanged,
    stamp,
)
from hearthd.bundle.parsing.file_formats import HEAD_BYTES, other_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import IntegerBlock

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# Value type -> NumPy's little-endian scalar of the same bytes.
_SCALARS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?",
    10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_PLAIN_NAMES = {"F32": "f32", "F16": "f16", "BF16": "bf16"}


@dataclass(frozen=True)
class _Tensor:
    """The location of a tensor: `offset` in bytes in the file; `shape` is row-major."""

    type: gguf.GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int

    @property
    def bytes(self) -> int:
        """The stored bytes."""
        return _stored_bytes(self.type, math.prod(self.shape))


class GgufSource(WeightSource):
    """The tensors and metadata of one GGUF file. Raises BadFile for a corrupt header."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamps = {path: stamp(path)}
        self._metadata, self._tensors = _read_header(path)

    @property
    @override
    def format(self) -> Literal["gguf"]:
        """Always "gguf"."""
        return "gguf"

    @override
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, in the order of the file."""
        return tuple(self._tensors)

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape, row-major."""
        return self._tensor(name).shape

    @override
    def dtype(self, name: str) -> str:
        """The type by its GGUF name, except "f32", "f16" and "bf16" in lower case."""
        type_name = self._tensor(name).type.name
        return _PLAIN_NAMES.get(type_name, type_name)

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        """The dequantized values of the tensor."""
        for shape, raw in self._raw_blocks(name):
            yield self._dequantize(name, raw).reshape(shape)

    @override
    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        """The integers of the tensor."""
        dtype = self.dtype(name)
        if dtype not in gguf_integers.TYPES:
            yield from super().integer_blocks(name)
        for shape, raw in self._raw_blocks(name):
            rows = raw.reshape(math.prod(shape[:-1]), -1)
            yield gguf_integers.decoded(dtype, rows, shape[-1])

    def _raw_blocks(self, name: str) -> Iterator[tuple[tuple[int, ...], NDArray[np.uint8]]]:
        """The shapes of blocks, and their stored bytes."""
        tensor = self._tensor(name)
        with self._path.open("rb", buffering=0) as file:
            file.seek(tensor.offset)
            for shape in block_shapes(tensor.shape):
                count = _stored_bytes(tensor.type, math.prod(shape))
                yield shape, read_array(file, self._path, count, f"tensor {name}")

    @override
    def files(self) -> tuple[Path, ...]:
        """The one file."""
        return (self._path,)

    @override
    def require_unchanged(self) -> None:
        """Raise BadFile if the file has changed since it was opened."""
        require_unchanged(self._stamps)

    @override
    def metadata(self) -> Mapping[str, object]:
        """Keys and values: str, int, float, bool, or a list of one of them."""
        return self._metadata

    def _tensor(self, name: str) -> _Tensor:
        if name not in self._tensors:
            raise NoSuchTensor(f"{self._path} has no tensor {name!r}")
        return self._tensors[name]

    def _dequantize(self, name: str, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        tensor = self._tensor(name)
        row_bytes = _stored_bytes(tensor.type, tensor.shape[-1])
        try:
            values: NDArray[np.float32] = gguf.dequantize(raw.reshape(-1, row_bytes), tensor.type)
        except NotImplementedError as error:
            raise UnsupportedType(
                f"{self._path}: tensor {name} is {tensor.type.name}, which is not converted to f32"
            ) from error
        return values


class _EndsInHeader(BadFile):
    """The file ends before its header does."""


class _Header:
    """A cursor over the file; every read first checks the length of the file."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.position = 0
        self.bytes = path.stat().st_size
        self._file = file

    def take(self, count: int, *, ahead: bool = False) -> bytes:
        """The next bytes; the cursor stays in front of those that are read `ahead`."""
        end = self.position + count
        # The second condition: the file has become shorter.
        if end > self.bytes or len(taken := self._file.read(count)) != count:
            raise _EndsInHeader(
                f"{self.path} is truncated: it has {self.bytes} bytes, and its header continues to "
                f"byte {end}; download or copy it again"
            )
        if ahead:
            self._file.seek(self.position)
        else:
            self.position = end
        return taken

    def integer(self, format_: str) -> int:
        value: int = struct.unpack("<" + format_, self.take(struct.calcsize("<" + format_)))[0]
        return value

    def string(self) -> str:
        start = self.position
        raw = self.take(self.integer("Q"))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise BadFile(f"{self.path}: the string at byte {start} is not UTF-8") from error

    def value(self, type_: int) -> object:
        if type_ == _STRING:
            return self.string()
        if type_ == _ARRAY:
            element, count = self.integer("I"), self.integer("Q")
            if element == _STRING:
                return [self.string() for _ in range(count)]
            return self._scalars(element, count)
        return self._scalars(type_, 1)[0]

    def _scalars(self, type_: int, count: int) -> list[object]:
        if type_ not in _SCALARS:
            raise BadFile(f"{self.path}: unknown value type {type_} before byte {self.position}")
        dtype = np.dtype(_SCALARS[type_])
        values: list[object] = np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
        return values


def tensor_ranges(path: Path) -> dict[str, range] | None:
    """The bytes of each tensor in a file of which `path` has at least the start.

    None if `path` ends before the header does. Raises BadFile for a corrupt header.
    """
    with path.open("rb") as file:
        try:
            _, tensors = _read_contents(_Header(path, file))
        except _EndsInHeader:
            return None
    return {
        name: range(tensor.offset, tensor.offset + tensor.bytes) for name, tensor in tensors.items()
    }


def _read_header(path: Path) -> tuple[dict[str, object], dict[str, _Tensor]]:
    try:
        with path.open("rb") as file:  # not mapped: a read error of a mapping is a signal
            header = _Header(path, file)
            metadata, tensors = _read_contents(header)
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror}") from error
    for name, tensor in tensors.items():
        end = tensor.offset + tensor.bytes
        if end > header.bytes:
            raise BadFile(
                f"{path} is truncated: it has {header.bytes} bytes, and tensor {name} ends at "
                f"{end}; download or copy it again"
            )
    return metadata, tensors


def _read_contents(header: _Header) -> tuple[dict[str, object], dict[str, _Tensor]]:
    _check_format(header)
    tensor_count, value_count = header.integer("Q"), header.integer("Q")
    metadata = _read_metadata(header, value_count)
    parts = metadata.get("split.count")
    if isinstance(parts, int) and parts > 1:
        number = metadata.get("split.no")
        part = number + 1 if isinstance(number, int) else "one"
        raise BadFile(
            f"{header.path} is part {part} of {parts} of a split GGUF file; join the parts with "
            "`llama-gguf-split --merge FIRST_PART OUT.gguf`"
        )
    return metadata, _read_tensors(header, tensor_count, metadata)


def _check_format(header: _Header) -> None:
    """Read the magic and the version; raises BadFile for another format or version."""
    head = header.take(min(HEAD_BYTES, header.bytes), ahead=True)
    if not head.startswith(MAGIC):
        reason = other_format(head) or f"it does not start with {MAGIC.decode()}"
        raise BadFile(f"{header.path} is not a GGUF file: {reason}")
    header.take(len(MAGIC))
    stored = header.take(4)
    version, swapped = (int.from_bytes(stored, order) for order in ("little", "big"))
    if swapped in VERSIONS:
        raise BadFile(
            f"{header.path} is a big-endian GGUF file, expected little-endian; convert it with "
            f"`gguf-convert-endian {header.path.name} little` of the package gguf"
        )
    if version not in VERSIONS:
        raise BadFile(
            f"{header.path} is GGUF version {version}, expected {' or '.join(map(str, VERSIONS))}; "
            "convert the model again with llama.cpp"
        )


def _read_metadata(header: _Header, count: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for _ in range(count):
        key = header.string()
        if key in metadata:
            raise BadFile(f"{header.path} has the key {key} twice")
        metadata[key] = header.value(header.integer("I"))
    return metadata


def _read_tensors(
    header: _Header, count: int, metadata: Mapping[str, object]
) -> dict[str, _Tensor]:
    """The tensors, with offsets from the start of the file."""
    table: dict[str, _Tensor] = {}
    for _ in range(count):
        name = header.string()
        axes = header.integer("I")
        if axes > MAX_AXES:
            raise BadFile(
                f"{header.path}: tensor {name} has {axes} axes, expected at most {MAX_AXES}"
            )
        shape = tuple(header.integer("Q") for _ in range(axes))[::-1]
        type_, offset = header.integer("I"), header.integer("Q")
        if name in table:
            raise BadFile(f"{header.path} has tensor {name} twice")
        table[name] = _Tensor(_tensor_type(header.path, name, type_, shape), shape, offset)
    alignment = metadata.get("general.alignment", gguf.GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise BadFile(f"{header.path}: general.alignment is {alignment!r}, expected a positive int")
    start = math.ceil(header.position / alignment) * alignment
    return {
        name: _Tensor(tensor.type, tensor.shape, start + tensor.offset)
        for name, tensor in table.items()
    }


def _tensor_type(
    path: Path, name: str, number: int, shape: tuple[int, ...]
) -> gguf.GGMLQuantizationType:
    try:
        type_ = gguf.GGMLQuantizationType(number)
    except ValueError as error:
        raise UnsupportedType(
            f"{path}: tensor {name} has the unknown type number {number}"
        ) from error
    block, _ = gguf.GGML_QUANT_SIZES[type_]
    if not shape or 0 in shape or shape[-1] % block:
        raise BadFile(
            f"{path}: tensor {name} of type {type_.name} has shape {shape}, "
            f"expected no empty axis and rows of a multiple of {block}"
        )
    return type_


def _stored_bytes(type_: gguf.GGMLQuantizationType, elements: int) -> int:
    block, block_bytes = gguf.GGML_QUANT_SIZES[type_]
    return elements // block * block_bytes
