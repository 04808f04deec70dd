"""A GGUF file, or all shards of a split one, as a `WeightSource`.

bundle/parsing/gguf_header.py reads the header; the `gguf` package dequantizes.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gguf
import numpy as np
from typing_extensions import override

from hearthd.baker.weights import gguf_integers
from hearthd.baker.weights.gguf_types import GGUF_TYPES
from hearthd.baker.weights.source import (
    BadFile,
    NoSuchTensor,
    UnsupportedType,
    WeightSource,
    block_shapes,
    read_array,
    require_unchanged,
    stamp,
)
from hearthd.bundle.parsing.gguf_header import (
    BadGguf,
    EndsInHeader,
    read_header,
    require_disjoint,
)
from hearthd.bundle.parsing.shard_names import shard_paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.weights.gguf_types import GgufType
    from hearthd.baker.weights.source import IntegerBlock
    from hearthd.bundle.parsing.gguf_header import GgufHeader

_SHARD_INDEX, _SHARD_COUNT = "split.no", "split.count"
_TENSOR_COUNT = "split.tensors.count"  # of all shards
_PLAIN_NAMES = {"F32": "f32", "F16": "f16", "BF16": "bf16"}


@dataclass(frozen=True)
class _Tensor:
    """The location of a tensor: `offset` in bytes in the file; `shape` is row-major."""

    file: Path
    type: GgufType
    shape: tuple[int, ...]
    offset: int

    @property
    def bytes(self) -> range:
        """The offsets of the stored bytes."""
        count = self.type.stored_bytes(math.prod(self.shape))
        return range(self.offset, self.offset + count)


class GgufSource(WeightSource):
    """The tensors and metadata of a GGUF file, or of all shards of a split one.

    Raises BadFile for a corrupt header, and for a shard that is missing or of another file.
    """

    format = "gguf"

    def __init__(self, path: Path) -> None:
        """`path` can be any shard."""
        self._path = path
        shards = shard_paths(path)
        for number, shard in enumerate(shards, 1):
            if len(shards) > 1 and not shard.exists():
                raise BadFile(
                    f"{shard} does not exist: it is shard {number} of {len(shards)} of a split "
                    f"GGUF file; download or copy it to {shard.parent}"
                )
        self._stamps = {shard: stamp(shard) for shard in shards}
        self._metadata, self._tensors = _read_shards(shards)

    @override
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, in the order of the files."""
        return tuple(self._tensors)

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape, row-major."""
        if (numbers := self._numbers(name)) is not None:
            return numbers.shape
        return self._tensor(name).shape

    @override
    def dtype(self, name: str) -> str:
        """The type by its GGUF name, except "f32", "f16" and "bf16" in lower case."""
        if self._numbers(name) is not None:
            return "f32"
        type_name = self._tensor(name).type.name
        return _PLAIN_NAMES.get(type_name, type_name)

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        """The dequantized values of the tensor."""
        if (numbers := self._numbers(name)) is not None:
            yield numbers
            return
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
        with tensor.file.open("rb", buffering=0) as file:
            file.seek(tensor.offset)
            for shape in block_shapes(tensor.shape):
                count = tensor.type.stored_bytes(math.prod(shape))
                yield shape, read_array(file, tensor.file, count, f"tensor {name}")

    @override
    def files(self) -> tuple[Path, ...]:
        """The file, or all shards in order."""
        return tuple(self._stamps)

    @override
    def require_unchanged(self) -> None:
        """Raise BadFile if a file has changed since it was opened."""
        require_unchanged(self._stamps)

    @override
    def metadata(self) -> Mapping[str, object]:
        """Keys and values: str, int, float, bool, or a list of one of them; of the first shard."""
        return self._metadata

    def _numbers(self, name: str) -> NDArray[np.float32] | None:
        """The numbers that the metadata have under a key, in place of a tensor."""
        values = self._metadata.get(name)
        if not isinstance(values, list) or not all(type(value) is float for value in values):
            return None
        return np.array(values, np.float32)

    def _tensor(self, name: str) -> _Tensor:
        if name not in self._tensors:
            raise NoSuchTensor(f"{self._path} has no tensor {name!r}")
        return self._tensors[name]

    def _dequantize(self, name: str, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        tensor = self._tensor(name)
        columns, type_ = tensor.shape[-1], tensor.type.name
        rows = raw.reshape(-1, tensor.type.stored_bytes(columns))
        if type_ in gguf_integers.NOT_IN_GGUF:
            return gguf_integers.plain_values(type_, rows, columns)
        try:
            values: NDArray[np.float32] = gguf.dequantize(rows, gguf.GGMLQuantizationType[type_])
        except NotImplementedError as error:
            raise UnsupportedType(
                f"{tensor.file}: tensor {name} is {type_}, which is not converted to f32"
            ) from error
        return values


def tensor_ranges(path: Path) -> dict[str, range] | None:
    """The bytes of each tensor in a file; `path` has at least its start.

    None if `path` ends before the header does. Raises BadFile for a corrupt header.
    """
    with path.open("rb") as file:
        try:
            header = read_header(file, path)
        except EndsInHeader:
            return None
        except BadGguf as error:
            raise BadFile(str(error)) from error
    return {name: tensor.bytes for name, tensor in _located(path, header).items()}


def _read_shards(shards: Sequence[Path]) -> tuple[dict[str, object], dict[str, _Tensor]]:
    """The metadata of the first shard, and the tensors of all."""
    metadata, tensors = _read_file(shards[0])
    _check_shard(shards, 0, metadata)
    count = metadata.get(_TENSOR_COUNT)
    for index, path in enumerate(shards[1:], 1):
        shard_metadata, shard_tensors = _read_file(path)
        _check_shard(shards, index, shard_metadata)
        if shard_metadata.get(_TENSOR_COUNT, count) != count:
            raise BadFile(
                f"{path} and {shards[0]} are not shards of the same file: their {_TENSOR_COUNT} "
                f"is {shard_metadata[_TENSOR_COUNT]} and {count}; download or copy them again"
            )
        for name in shard_tensors:
            if name in tensors:
                raise BadFile(f"tensor {name} is in both {tensors[name].file} and {path}")
        tensors |= shard_tensors
    if len(shards) > 1 and len(tensors) != count:
        raise BadFile(
            f"{shards[0]}: {_TENSOR_COUNT} is {count!r}, but its {len(shards)} shards have "
            f"{len(tensors)} tensors; download or copy them again"
        )
    return metadata, tensors


def _check_shard(shards: Sequence[Path], index: int, metadata: Mapping[str, object]) -> None:
    """Raise BadFile unless a file is the shard that its name says, or else not split."""
    path, stored, count = shards[index], metadata.get(_SHARD_INDEX), metadata.get(_SHARD_COUNT)
    # The count is 0 in a file that was joined with `llama-gguf-split --merge`.
    if isinstance(stored, int) and isinstance(count, int) and count > 1:
        if (stored, count) != (index, len(shards)):
            raise BadFile(
                f"{path} is shard {stored + 1} of {count} of a split GGUF file, whose name ends in "
                f"-{stored + 1:05}-of-{count:05}.gguf; give each shard its name, or download it "
                "again"
            )
    elif len(shards) > 1:
        raise BadFile(
            f"{path} is not a shard of a split GGUF file, but it is named as shard "
            f"{index + 1} of {len(shards)}; rename it if it has all tensors of a model"
        )


def _read_file(path: Path) -> tuple[dict[str, object], dict[str, _Tensor]]:
    """The metadata and the tensors of one file, which has all of them."""
    try:
        with path.open("rb") as file:  # not mapped: a read error of a mapping is a signal
            header = read_header(file, path)
            size = file.seek(0, os.SEEK_END)
        tensors = _located(path, header)
        for name, tensor in tensors.items():
            if tensor.bytes.stop > size:
                raise BadGguf(
                    f"{path} is truncated: it has {size} bytes, and tensor {name} ends at "
                    f"{tensor.bytes.stop}; download or copy it again"
                )
        require_disjoint(path, {name: tensor.bytes for name, tensor in tensors.items()})
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror}") from error
    except BadGguf as error:
        raise BadFile(str(error)) from error
    return header.metadata, tensors


def _located(path: Path, header: GgufHeader) -> dict[str, _Tensor]:
    """The tensors of a file by name; raises UnsupportedType or BadFile for a type or a shape."""
    return {
        name: _Tensor(
            file=path,
            type=_tensor_type(path, name, tensor.type, tensor.shape),
            shape=tensor.shape,
            offset=tensor.offset,
        )
        for name, tensor in header.tensors.items()
    }


def _tensor_type(path: Path, name: str, number: int, shape: tuple[int, ...]) -> GgufType:
    type_ = GGUF_TYPES.get(number)
    if type_ is None:
        raise UnsupportedType(f"{path}: tensor {name} has the unknown type number {number}")
    if not shape or 0 in shape or shape[-1] % type_.columns:
        raise BadFile(
            f"{path}: tensor {name} of type {type_.name} has shape {shape}, "
            f"expected no empty axis and rows of a multiple of {type_.columns}"
        )
    return type_
