"""What a file of weights is to the rest of the baker: named tensors, read as f32 in row blocks.

This file knows no file format (`gguf.py` and `safetensors.py` do) and no architecture: names are
those stored in the file, values are what the file stores, with no convention applied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from models.bundle import file_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import RawIOBase
    from pathlib import Path

    from numpy.typing import NDArray

# The most f32 bytes that one block holds, unless a single row is larger.
BLOCK_BYTES = 16 << 20
# A block that is not a tensor's last has a multiple of so many rows: they may be stored together.
TOGETHER = 16
# Axes of a tensor: no known weight has more than four, and NumPy ends at 64.
MOST_AXES = 8


class WeightsError(Exception):
    """Weights cannot be read. The message names the file or tensor and what was wanted.

    WeightsError
     +- NoWeights          nothing to read there, and what to install or pass instead
     +- BadFile            a file is missing, truncated, corrupt or of another version
     +- UnsupportedType    a tensor is stored in a type that is not read
     +- NoSuchTensor       the weights hold no tensor of that name
     +- TokenizerError    the tokenizer that came with them is missing, broken, not converted
    """


class NoWeights(WeightsError):
    """No weights at the path, or no path given and no demo weights installed."""


class BadFile(WeightsError):
    """A file of the weights is missing, truncated, corrupt or of a version that is not read."""


class UnsupportedType(WeightsError):
    """A tensor is stored in a type that cannot be turned into f32."""


class NoSuchTensor(WeightsError):
    """The weights hold no tensor of that name."""


class TokenizerError(WeightsError):
    """The weights' tokenizer is missing, broken or of a kind that is not converted."""


class WeightSource(Protocol):
    """Named tensors of one model. Every method raises a WeightsError for bad files or names."""

    @property
    def format(self) -> Literal["gguf", "safetensors"]:
        """The kind of file: it decides the tensors' names and the meaning of `metadata`."""

    def names(self) -> tuple[str, ...]:
        """The tensors' names as stored."""

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, row-major: a linear layer is (outputs, inputs)."""

    def dtype(self, name: str) -> str:
        """The stored type: "f32", "f16", "bf16", or a GGUF name such as "Q8_0"."""

    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        """A tensor's values along axis 0, f32 (rows, *shape[1:]), about `BLOCK_BYTES` at a time.

        A tensor of less than two axes is one block. Only one block is in memory at once.
        """

    def read(self, name: str) -> NDArray[np.float32]:
        """The whole tensor, f32 of its `shape`."""
        values = np.empty(self.shape(name), np.float32)
        rest = values.reshape(-1)
        for block in self.blocks(name):
            rest[: block.size] = block.reshape(-1)
            rest = rest[block.size :]
        return values

    def files(self) -> tuple[Path, ...]:
        """The files that the weights come from."""

    def require_unchanged(self) -> None:
        """Raise BadFile unless the files are those that were opened, as they were then."""

    def metadata(self) -> Mapping[str, object]:
        """GGUF: its keys and values; Hugging Face: config.json."""


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """By what a file is known again: another writer changes one of these, if only the time."""

    bytes: int
    inode: int
    modified: int  # ns


def stamp(path: Path) -> Stamp:
    """The file at a path, as it is now; raises BadFile, at once also for a pipe or a device."""
    try:
        if (kind := file_type(path)) != "a file":
            raise BadFile(f"{path} is {kind}, wanted a file")
        found = path.stat()
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror}") from error
    return Stamp(bytes=found.st_size, inode=found.st_ino, modified=found.st_mtime_ns)


def require_unchanged(stamps: Mapping[Path, Stamp]) -> None:
    """Raise BadFile unless each file is the one that it was when its stamp was taken."""
    for path, before in stamps.items():
        if stamp(path) != before:
            raise BadFile(f"{path} has changed while it was read: bake again when it is whole")


def read_array(file: RawIOBase, path: Path, count: int, what: str) -> NDArray[np.uint8]:
    """The next `count` bytes of a file that was opened unbuffered, which belong to `what`.

    Raises BadFile, with the system's reason if it could not read them.
    """
    data = np.empty(count, np.uint8)
    rest = data.data
    try:
        while rest and (got := file.readinto(rest)):
            rest = rest[got:]
    except OSError as error:
        raise BadFile(f"cannot read {path}, {what}: {error.strerror}") from error
    if rest:
        raise BadFile(f"{path} ends within {what}: copy it again")
    return data


def read_text(path: Path) -> str:
    """A file's text; raises OSError or ValueError, at once also for a pipe or a device."""
    if (kind := file_type(path)) != "a file":
        raise OSError(f"{path} is {kind}, wanted a file")
    return path.read_text(encoding="utf-8")


def block_shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The shapes of a tensor's blocks, in order along axis 0."""
    if len(shape) < 2:
        yield shape
        return
    row_bytes = 4 * math.prod(shape[1:])
    rows = max(1, BLOCK_BYTES // max(1, row_bytes) // TOGETHER) * TOGETHER
    for start in range(0, shape[0], rows):
        yield min(rows, shape[0] - start), *shape[1:]
