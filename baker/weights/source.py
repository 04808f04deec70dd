"""The interface of weights: named tensors, read as f32 in blocks of rows.

Names and values are those stored in the file; conventions of architectures are applied elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from hearthd.bundle import file_type
from hearthd.bundle.parsing import text_files
from hearthd.bundle.parsing.unfinished_download import unfinished_download

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import RawIOBase
    from pathlib import Path

    from numpy.typing import NDArray

# The types of tensors, as `WeightSource.dtype` names them, that are not quantized.
FLOAT_TYPES = ("f32", "f16", "bf16")
# Maximum size of a block in f32 bytes, unless a single row is larger.
BLOCK_BYTES = 16 << 20
# Every block except the last has a multiple of this many rows, which may be stored together.
ROW_GROUP = 16


class WeightsError(Exception):
    """Weights cannot be read. The message names the file or tensor and what is expected.

    WeightsError
     +- NoWeights          no weights at the path; the message says what to install or pass
     +- BadFile            a file is missing, truncated, corrupt or of an unsupported version
     +- UnsupportedType    a tensor is stored in an unsupported type
     +- NoSuchTensor       there is no tensor with this name
     +- TokenizerError     the tokenizer is missing, corrupt or of an unsupported kind
    """


class NoWeights(WeightsError):
    """There are no weights at the path, or no package with weights is installed."""


class BadFile(WeightsError):
    """A file of the weights is missing, truncated, corrupt or of an unsupported version."""


class UnsupportedType(WeightsError):
    """A tensor is stored in a type that cannot be converted to f32."""


class NoSuchTensor(WeightsError):
    """There is no tensor with this name."""


class TokenizerError(WeightsError):
    """The tokenizer of the weights is missing, corrupt or of an unsupported kind."""


@dataclass(frozen=True, kw_only=True)
class IntegerBlock:
    """Rows of a quantized tensor: N rows of K columns, in groups that share a scale.

    The real values follow from a MatrixFormat (models/dsl/matrix_format.py).

    integers     (N, K): uint8, int8 of 8 bits, or int16 of 12
    scale        f32 (N, groups), or (N, super-blocks)
    minimum      f32, of the shape of the scale, or None
    multipliers  int8 (N, groups, 1), of the scales of super-blocks, or (N, groups, 2), also of
                 their minimums; or None
    """

    integers: NDArray[np.uint8] | NDArray[np.int8] | NDArray[np.int16]
    scale: NDArray[np.float32]
    minimum: NDArray[np.float32] | None
    multipliers: NDArray[np.int8] | None = None


class WeightSource(Protocol):
    """Named tensors of one model. Every method raises a WeightsError for bad files or names."""

    @property
    def format(self) -> Literal["gguf", "safetensors"]:
        """The file format, which decides the names of tensors and the meaning of `metadata`."""

    @property
    def folder(self) -> Path | None:
        """The Hugging Face folder, which also has the tokenizer; None for a GGUF file."""
        return None

    def names(self) -> tuple[str, ...]:
        """The tensors' names as stored."""

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, row-major: a linear layer is (outputs, inputs)."""

    def is_flat(self, name: str) -> bool:  # noqa: ARG002  (for overriding)
        """Whether `shape` has all values in one column.

        A copy of the headers of some quantized folders does not say how many columns there are.
        """
        return False

    def dtype(self, name: str) -> str:
        """The stored type: "f32", "f16", "bf16", or a GGUF name such as "Q8_0"."""

    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        """Blocks of a tensor along axis 0, f32 (rows, *shape[1:]), about `BLOCK_BYTES` each.

        A tensor with less than two axes is one block. Only one block is in memory at a time.
        """

    def integer_storage(self, name: str) -> str | None:  # noqa: ARG002  (for overriding)
        """The storage (models/dsl/storage.py) that holds the integers of a tensor, if one does.

        None for GGUF files: baker/parameters/native.py has the storage of each of their types.
        """
        return None

    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        """The blocks of a quantized tensor as they are stored; raises UnsupportedType for others.

        baker/weights/gguf_integers.py and quantized_folder have these types.
        """
        raise UnsupportedType(f"tensor {name} is {self.dtype(name)}, which has no integers")

    def read(self, name: str) -> NDArray[np.float32]:
        """The whole tensor, f32, of its `shape`."""
        values = np.empty(self.shape(name), np.float32)
        rest = values.reshape(-1)
        for block in self.blocks(name):
            rest[: block.size] = block.reshape(-1)
            rest = rest[block.size :]
        return values

    def files(self) -> tuple[Path, ...]:
        """The files of the weights."""

    def require_unchanged(self) -> None:
        """Raise BadFile if a file has changed since it was opened."""

    def metadata(self) -> Mapping[str, object]:
        """The keys and values of a GGUF file, or config.json of a Hugging Face folder."""


def path_of(source: WeightSource) -> Path:
    """The Hugging Face folder, or the GGUF file: its first shard if it is split."""
    return source.folder or source.files()[0]


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """Size, inode and time of a file, to detect that another process has changed it."""

    bytes: int
    inode: int
    modified: int  # ns


def stamp(path: Path) -> Stamp:
    """The current stamp of a file.

    Raises BadFile, also for a pipe or a device, and for a file that is being downloaded.
    """
    try:
        if unfinished := unfinished_download(path):
            raise BadFile(f"{path}: {unfinished}")
        if (actual := file_type(path)) != "a file":
            raise BadFile(f"{path} is {actual}, expected a file")
        status = path.stat()
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror}") from error
    return Stamp(bytes=status.st_size, inode=status.st_ino, modified=status.st_mtime_ns)


def require_unchanged(stamps: Mapping[Path, Stamp]) -> None:
    """Raise BadFile if a file has changed since its stamp was taken."""
    for path, before in stamps.items():
        if stamp(path) != before:
            raise BadFile(f"{path} changed while it was read; bake again when it is complete")


def read_array(file: RawIOBase, path: Path, count: int, what: str) -> NDArray[np.uint8]:
    """Read the next `count` bytes of an unbuffered file; `what` names them in errors.

    Raises BadFile, with the reason of the operating system if there is one.
    """
    data = np.empty(count, np.uint8)
    rest = data.data
    try:
        while rest and (got := file.readinto(rest)):
            rest = rest[got:]
    except OSError as error:
        raise BadFile(f"cannot read {path}, {what}: {error.strerror}") from error
    if rest:
        raise BadFile(f"{path} ends within {what}; copy the file again")
    return data


def read_text(path: Path) -> str:
    """The text of a file; raises OSError or ValueError, also for a pipe or a device."""
    if (actual := file_type(path)) != "a file":
        raise OSError(f"{path} is {actual}, expected a file")
    return text_files.read_text(path)


def block_shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The shapes of a tensor's blocks, in order along axis 0."""
    if len(shape) < 2:
        yield shape
        return
    row_bytes = 4 * math.prod(shape[1:])
    # Of several axes, the last one has the columns: the matrices of experts have whole groups.
    group = 1 if len(shape) > 2 and shape[-2] % ROW_GROUP == 0 else ROW_GROUP
    rows = max(1, BLOCK_BYTES // max(1, row_bytes) // group) * group
    for start in range(0, shape[0], rows):
        yield min(rows, shape[0] - start), *shape[1:]
