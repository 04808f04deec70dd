"""The places that a program has for LoRA adapters: `--adapters` of a bake.

The factors of all places are arguments of the entry points that compute adapters. In shape comments
`P` is places, `R` the largest rank of an adapter, `K` the columns of a matrix, `T` the terms of all
matrices that read the same rows, R for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST
from hearthd.bundle.provenance import OMITTED

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "NO_PLACES",
    "AdapterArray",
    "AdapterDType",
    "AdapterMatrix",
    "AdapterPlaces",
    "ModelMatrix",
]

_MAX_PLACES = 2**10

AdapterDType: TypeAlias = Literal["i8", "f16", "f32"]
_BYTES: Mapping[AdapterDType, int] = {"i8": 1, "f16": 2, "f32": 4}


@dataclass(frozen=True, kw_only=True)
class AdapterArray:
    """The factors of all places: A (P, T, K), or B (P, blocks of 16 outputs, R, 16).

    B in i8 has the terms in fours: (P, blocks, R / 4, 64). After it comes an array of the scales of
    its outputs, f16 (P, blocks, 16). The rows of A in i8 have no scales: B's contain them.
    """

    name: str
    shape: tuple[int, ...]
    dtype: AdapterDType

    @property
    def bytes(self) -> int:
        """The size of the array in bytes."""
        return math.prod(self.shape) * _BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True)
class ModelMatrix:
    """A matrix (rows, columns) of a model, as adapters name it.

    module       the module's name in Hugging Face's models
    gguf         the tensor's name in GGUF files; empty in bundles of older versions
    interleaved  the rows of a head, if files have the rows of both halves in turn; else 0
    folder_interleaved  whether Hugging Face's models have them so
    gguf_interleaved  whether GGUF files have
    """

    module: str
    rows: int
    columns: int
    gguf: str = field(default="", metadata=OMITTED)
    interleaved: int = field(default=0, metadata=OMITTED)
    folder_interleaved: bool = field(default=False, metadata=OMITTED)
    gguf_interleaved: bool = field(default=True, metadata=OMITTED)


@dataclass(frozen=True, kw_only=True)
class AdapterMatrix(ModelMatrix):
    """A matrix that an adapter can change, and where its factors are.

    down         the array of A, by index, and the first of its R terms in it
    up           the array of B, by index, and the first of its blocks in it
    """

    down: int
    first_term: int
    up: int
    first_block: int


@dataclass(frozen=True, kw_only=True)
class AdapterPlaces:
    """The places of a program: `count` of them, 0 if it has none.

    rank               the largest rank of an adapter
    arrays             in the order of the entry points' arguments
    matrices           that an adapter can change
    gguf_architecture  of the model, as GGUF files name it; empty in bundles of older versions
    """

    count: int
    rank: int
    arrays: tuple[AdapterArray, ...]
    matrices: tuple[AdapterMatrix, ...]
    gguf_architecture: str = field(default="", metadata=OMITTED)

    def __post_init__(self) -> None:
        """Raises NotABundle for a size out of range, and for factors outside of their arrays."""
        if not 0 <= self.count <= _MAX_PLACES:
            raise NotABundle(
                f"{MANIFEST}.adapters.count: got {self.count}, expected 0 to {_MAX_PLACES}"
            )
        for i, array in enumerate(self.arrays):
            if min(array.shape, default=0) < 1 or array.shape[0] != self.count:
                raise NotABundle(f"{MANIFEST}.adapters.arrays[{i}].shape: got {array.shape}")
        for i, matrix in enumerate(self.matrices):
            width = matrix.interleaved
            if width and (width < 2 or width % 2 or matrix.rows % width):
                raise NotABundle(f"{MANIFEST}.adapters.matrices[{i}].interleaved: got {width}")
            if not self._fits(matrix):
                raise NotABundle(f"{MANIFEST}.adapters.matrices[{i}]: factors outside of an array")

    @property
    def bytes(self) -> int:
        """The size of all places in bytes."""
        return sum(array.bytes for array in self.arrays)

    def lanes(self, matrix: AdapterMatrix) -> int:
        """The outputs of a matrix whose factors B are stored together: a block."""
        up = self.arrays[matrix.up]
        return (self.arrays[matrix.up + 1] if up.dtype == "i8" else up).shape[-1]

    def _fits(self, matrix: AdapterMatrix) -> bool:
        sizes = (matrix.rows - 1, matrix.columns - 1, matrix.first_term, matrix.first_block)
        if min(*sizes, matrix.down, matrix.up) < 0 or max(matrix.down, matrix.up) >= len(
            self.arrays
        ):
            return False
        a, b = self.arrays[matrix.down].shape, self.arrays[matrix.up].shape
        if len(a) != 3 or len(b) != 4 or not self._has_its_scales(matrix.up):
            return False
        lanes = self.lanes(matrix)
        blocks, terms = -(-matrix.rows // lanes), b[3] // lanes
        return (
            a[2] == matrix.columns
            and matrix.first_term + self.rank <= a[1]
            and b[2:] == (-(-self.rank // terms), lanes * terms)
            and matrix.first_block + blocks <= b[1]
        )

    def _has_its_scales(self, up: int) -> bool:
        """Whether an array of B is of floats, or has its scales after it."""
        b, after = self.arrays[up], self.arrays[up + 1 : up + 2]
        return b.dtype != "i8" or any(
            array.dtype == "f16"
            and array.shape[:-1] == b.shape[:2]
            and array.shape[-1] <= b.shape[3]
            for array in after
        )


NO_PLACES = AdapterPlaces(count=0, rank=0, arrays=(), matrices=())
