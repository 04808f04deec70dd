"""The header of a GGUF file, whoever reads its tensors: metadata, and where the tensors are.

It is parsed here, since `gguf.GGUFReader` takes ten seconds and 700 MB for a vocabulary of 262144
tokens. Layout: magic, version, two counts, the keys and values, the tensors' names, dimensions
(innermost first), types and offsets, then the data, aligned. Little-endian, versions 2 and 3.
"""

from __future__ import annotations

import itertools
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.bundle.parsing.file_formats import HEAD_BYTES, OTHER_FILE, other_format

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import BinaryIO

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_ALIGNMENT = "general.alignment"
_DEFAULT_ALIGNMENT = 32  # bytes
_MAX_AXES = 4  # of ggml
_MAX_BYTES = 1 << 27  # of a header; the largest vocabularies take 1 << 24
_MAX_VALUES = 1 << 23  # in all arrays; 262144 tokens with their merges take 1 << 20
_MAX_ENTRIES = 1 << 18  # keys, and tensors: 47,000 in the largest file with a tensor per expert
_STRING, _ARRAY = 8, 9
_LENGTH = 8  # bytes in front of a string
# Value type -> format of `struct`.
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip


class BadGguf(ValueError):
    """A file is not a complete GGUF file; the message names it."""


class EndsInHeader(BadGguf):
    """The file ends before its header does."""


@dataclass(frozen=True, kw_only=True)
class GgufTensor:
    """Number of the type, row-major shape, and offset in bytes from the start of the file."""

    type: int
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True, kw_only=True)
class GgufHeader:
    """The metadata and the tensors of a file, both by name in the order of the file.

    metadata  str, int, float, bool, or a list of one of them
    """

    metadata: dict[str, object]
    tensors: dict[str, GgufTensor]


def read_header(file: BinaryIO, path: Path) -> GgufHeader:
    """The header of an opened file; `path` names it in errors.

    Raises BadGguf, or OSError if it cannot be read. The tensors may lie beyond the end of the file.
    """
    cursor = _Cursor(path, file)
    _check_format(cursor)
    tensor_count, value_count = cursor.integer("Q"), cursor.integer("Q")
    for count, what in ((tensor_count, "tensors"), (value_count, "keys")):
        if count > _MAX_ENTRIES:
            raise BadGguf(f"{path} has {count} {what}, expected at most {_MAX_ENTRIES}")
    metadata = _read_metadata(cursor, value_count)
    return GgufHeader(metadata=metadata, tensors=_read_tensors(cursor, tensor_count, metadata))


def require_gguf(path: Path) -> None:
    """Raise BadGguf unless a file starts as GGUF files do, or OSError if it cannot be read."""
    with path.open("rb") as file:
        _check_magic(_Cursor(path, file))


def require_disjoint(path: Path, tensors: Mapping[str, range]) -> None:
    """Raise BadGguf if the bytes of two tensors of a file overlap."""
    ordered = sorted(tensors.items(), key=lambda tensor: tensor[1].start)
    for (name, bytes_), (next_name, next_bytes) in itertools.pairwise(ordered):
        if bytes_.stop > next_bytes.start:
            raise BadGguf(
                f"{path}: tensors {name} and {next_name} overlap at byte {next_bytes.start}; "
                "download or copy it again"
            )


class _Cursor:
    """A position in the file; every read first checks the length of the file."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.position = 0
        self.bytes = file.seek(0, os.SEEK_END)
        self._values = 0  # in arrays
        self._file = file
        file.seek(0)

    def take(self, count: int, *, ahead: bool = False) -> bytes:
        """The next bytes; `ahead` leaves the cursor in front of them."""
        end = self.position + count
        self._require_end(end)
        if len(taken := self._file.read(count)) != count:
            raise self._truncated(end)  # the file has become shorter
        if ahead:
            self._file.seek(self.position)
        else:
            self.position = end
        return taken

    def _require_end(self, end: int) -> None:
        """Raise BadGguf if the header cannot continue to a byte."""
        if end > self.bytes:
            raise self._truncated(end)
        if end > _MAX_BYTES:
            raise BadGguf(
                f"{self.path}: its header continues to byte {end}, expected at most {_MAX_BYTES}"
            )

    def _truncated(self, end: int) -> EndsInHeader:
        return EndsInHeader(
            f"{self.path} is truncated: it has {self.bytes} bytes, and its header continues to "
            f"byte {end}; download or copy it again"
        )

    def integer(self, format_: str) -> int:
        value: int = struct.unpack("<" + format_, self.take(struct.calcsize("<" + format_)))[0]
        return value

    def string(self) -> str:
        start = self.position
        raw = self.take(self.integer("Q"))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise BadGguf(f"{self.path}: the string at byte {start} is not UTF-8") from error

    def value(self, type_: int) -> object:
        if type_ == _STRING:
            return self.string()
        if type_ == _ARRAY:
            element, count = self.integer("I"), self.integer("Q")
            self._require_end(self.position + count * (_LENGTH if element == _STRING else 1))
            self._values += count
            if self._values > _MAX_VALUES:
                raise BadGguf(
                    f"{self.path}: its arrays have {self._values} values, expected at most "
                    f"{_MAX_VALUES}"
                )
            if element == _STRING:
                return [self.string() for _ in range(count)]
            return self._scalars(element, count)
        return self._scalars(type_, 1)[0]

    def _scalars(self, type_: int, count: int) -> list[object]:
        if type_ not in _SCALARS:
            raise BadGguf(f"{self.path}: unknown value type {type_} before byte {self.position}")
        format_ = _SCALARS[type_]
        raw = self.take(count * struct.calcsize("<" + format_))
        return list(struct.unpack(f"<{count}{format_}", raw))


def _check_magic(cursor: _Cursor) -> None:
    """Read the magic; raises BadGguf for another format."""
    head = cursor.take(min(HEAD_BYTES, cursor.bytes), ahead=True)
    if not head.startswith(MAGIC):
        reason = other_format(head) or (f"it does not start with {MAGIC.decode()}; {OTHER_FILE}")
        raise BadGguf(f"{cursor.path} is not a GGUF file: {reason}")
    cursor.take(len(MAGIC))


def _check_format(cursor: _Cursor) -> None:
    """Read the magic and the version; raises BadGguf for another format or version."""
    _check_magic(cursor)
    stored = cursor.take(4)
    version, swapped = (int.from_bytes(stored, order) for order in ("little", "big"))
    if swapped in VERSIONS:
        raise BadGguf(
            f"{cursor.path} is a big-endian GGUF file, expected little-endian; convert it with "
            f"`gguf-convert-endian {cursor.path.name} little` of the package gguf"
        )
    if version not in VERSIONS:
        raise BadGguf(
            f"{cursor.path} is GGUF version {version}, expected {' or '.join(map(str, VERSIONS))}; "
            "convert the model again with llama.cpp"
        )


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for _ in range(count):
        key = cursor.string()
        if key in metadata:
            raise BadGguf(f"{cursor.path} has the key {key} twice")
        metadata[key] = cursor.value(cursor.integer("I"))
    return metadata


def _read_tensors(
    cursor: _Cursor, count: int, metadata: Mapping[str, object]
) -> dict[str, GgufTensor]:
    """The tensors, with offsets from the start of the file."""
    table: dict[str, tuple[int, tuple[int, ...], int]] = {}
    for _ in range(count):
        name = cursor.string()
        axes = cursor.integer("I")
        if axes > _MAX_AXES:
            raise BadGguf(
                f"{cursor.path}: tensor {name} has {axes} axes, expected at most {_MAX_AXES}"
            )
        shape = tuple(cursor.integer("Q") for _ in range(axes))[::-1]
        type_, offset = cursor.integer("I"), cursor.integer("Q")
        if name in table:
            raise BadGguf(f"{cursor.path} has tensor {name} twice")
        table[name] = type_, shape, offset
    alignment = metadata.get(_ALIGNMENT, _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment.bit_count() > 1:
        raise BadGguf(f"{cursor.path}: {_ALIGNMENT} is {alignment!r:.80}, expected a power of 2")
    for name, (_, _, offset) in table.items():
        if offset % alignment:
            raise BadGguf(
                f"{cursor.path}: tensor {name} has offset {offset}, expected a multiple of "
                f"{alignment}, the alignment; download or copy it again"
            )
    start = -(-cursor.position // alignment) * alignment
    return {
        name: GgufTensor(type=type_, shape=shape, offset=start + offset)
        for name, (type_, shape, offset) in table.items()
    }
