"""A matrix that several stored tensors hold: numbers, and scales that multiply them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hearthd.baker.weights.source import BadFile, IntegerBlock, block_shapes
from hearthd.models.dsl.matrix_format import FORMATS, STORED
from hearthd.models.dsl.matrix_packing import numbers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from hearthd.baker.weights.safetensors import SafetensorsSource
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.dsl.matrix_format import MatrixFormat

    Array: TypeAlias = NDArray[Any]
    # Some rows of a matrix; slices begin at a multiple of 16.
    ReadRows: TypeAlias = Callable[[slice], "ScaledRows"]


def _columns_of_a_scale(form: MatrixFormat) -> int:
    return form.super_block or form.columns


# Formats whose weights are an integer times a scale, the smallest first.
_PLAIN = sorted(
    (
        form
        for form in STORED
        if not (form.minimum or form.has_multipliers or form.exponents or form.values)
        and not form.missing
        and form.steps == 1
    ),
    key=lambda form: form.bits + 16 / _columns_of_a_scale(form),
)


@dataclass(frozen=True, kw_only=True)
class ScaledRows:
    """n rows of a matrix: a weight is a number times a scale.

    numbers  (n, K): integers or floats
    scale    f32 (n, S): K / S columns that follow each other share a scale
    """

    numbers: Array
    scale: NDArray[np.float32]

    def values(self) -> NDArray[np.float32]:
        """The weights, f32 (n, K)."""
        groups = self.numbers.astype(np.float32).reshape(*self.scale.shape, -1)
        return np.asarray(groups * self.scale[..., np.newaxis]).reshape(self.numbers.shape)


@dataclass(frozen=True)
class StoredParts:
    """The stored tensors of a module, such as NAME.qweight and NAME.scales; `method` made them.

    `separator` is between the names of the module and of a part.
    """

    source: SafetensorsSource
    module: str
    method: str
    separator: str = "."

    def has(self, part: str) -> bool:
        """Whether there is such a tensor."""
        return self.source.has(self._name(part))

    def shape(self, part: str, *types: str, axes: int | None = None) -> tuple[int, ...]:
        """The shape of a tensor; raises BadFile if it is missing, or of other axes or types."""
        name = self._name(part)
        if not self.has(part):
            raise BadFile(
                f"{self.source.folder}: {self.module} is quantized with {self.method}, but there "
                f"is no tensor {name}; download the folder again"
            )
        shape, type_ = self.source.shape(name), self.source.dtype(name)
        if axes not in (None, len(shape)) or type_ not in types:
            count = "" if axes is None else f"{axes} {'axis' if axes == 1 else 'axes'} of "
            raise self.refused(part, f"is {type_} {shape}, expected {count}{' or '.join(types)}")
        return shape

    def type(self, part: str) -> str:
        """The type of a tensor that is there."""
        return self.source.dtype(self._name(part))

    def require(self, part: str, expected: tuple[int, ...], *types: str) -> None:
        """Raise BadFile unless a tensor has this shape and one of the types."""
        shape = self.shape(part, *types, axes=len(expected))
        if shape != expected:
            raise self.refused(part, f"has shape {shape}, expected {expected}")

    def read(self, part: str) -> Array:
        """A whole tensor as it is stored."""
        return self.source.stored(self._name(part))

    def refused(self, part: str, reason: str) -> BadFile:
        """The error of a tensor that is not as the method stores it."""
        name = self._name(part)
        return BadFile(
            f"{self.source.file(name)}: tensor {name} of {self.method} {reason}; download it "
            "again, or use the unquantized folder or a GGUF file"
        )

    def _name(self, part: str) -> str:
        return f"{self.module}{self.separator}{part}"


@dataclass(frozen=True, kw_only=True)
class QuantizedMatrix:
    """A matrix (N, K) of a module, or the matrices (X, N, K) of its experts.

    parts    the stored tensors
    type     as `hearth inspect` names it, such as "AWQ int4"
    shape    (N, K) or (X, N, K)
    storage  that holds its integers, a name of STORAGES; None if none does
    open     read the stored tensors; the result computes rows of the matrix, or of the matrices of
             all experts, one after the other
    is_flat  see WeightSource
    """

    parts: StoredParts
    type: str
    shape: tuple[int, ...]
    storage: str | None
    open: Callable[[], ReadRows]
    is_flat: bool = False

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """The values, f32, in blocks of rows or of experts."""
        for rows in self._row_blocks():
            yield rows.values().reshape(-1, *self.shape[1:])

    def integer_blocks(self) -> Iterator[IntegerBlock]:
        """The integers as `storage` has them, in blocks of rows; raises BadFile for others."""
        form = FORMATS[str(self.storage)]
        low, high = min(form.values, default=0), max(form.values, default=0)
        if not form.values:
            low, high = _range(form)
        for rows in self._row_blocks():
            numbers = rows.numbers
            if numbers.min() < low or numbers.max() > high:
                raise BadFile(
                    f"{self.parts.source.folder}: {self.parts.module} of {self.parts.method} has "
                    f"integers from {numbers.min()} to {numbers.max()}, quantization_config says "
                    f"{low} to {high}; correct it, or use the unquantized folder or a GGUF file"
                )
            groups = self.shape[-1] // _columns_of_a_scale(form)
            integers: Array = (numbers + form.zero).astype(np.int8 if form.signed else np.uint8)
            if form.values:
                integers = numbers_of(form, numbers)
            yield IntegerBlock(
                integers=integers,
                scale=np.repeat(rows.scale, groups // rows.scale.shape[1], axis=1),
                minimum=None,
            )

    def _row_blocks(self) -> Iterator[ScaledRows]:
        read_rows, start = self.open(), 0
        for *counts, _ in block_shapes(self.shape):
            count = math.prod(counts)
            yield read_rows(slice(start, start + count))
            start += count


@dataclass(frozen=True, kw_only=True)
class Method:
    """A tool's way to store matrices: a value of `quant_method`.

    marks   the tensor of a module by which its matrix is known to be quantized
    parts   all tensors of such a module that hold the matrix, or that nothing reads
    unused  ends of the names of other tensors that nothing reads, such as scales of KV caches
    separator  what is between the names of a module and of its tensors
    matrix  the matrix of a module, by its tensors' headers and `quantization_config`; raises
            BadFile or ConfigError
    """

    marks: tuple[str, ...]
    parts: tuple[str, ...]
    matrix: Callable[[StoredParts, ConfigJson], QuantizedMatrix]
    unused: tuple[str, ...] = ()
    separator: str = "."


def integer_storage(low: int, high: int, group: int) -> str | None:
    """The smallest storage of integers from `low` to `high` whose scales hold for `group` columns.

    None if there is none.
    """
    for form in _PLAIN:
        smallest, largest = _range(form)
        if smallest <= low and high <= largest and group % _columns_of_a_scale(form) == 0:
            return form.name
    return None


def _range(form: MatrixFormat) -> tuple[int, int]:
    """The smallest and the largest integer, less the integer for 0."""
    low, high = form.range
    return low - form.zero, high - form.zero


def unpack(words: Array, bits: int) -> NDArray[np.uint8]:
    """(..., W) integers as (..., 8 W itemsize / bits): `bits` of them each, the lowest first."""
    stored = np.ascontiguousarray(words).view(np.uint8)
    if 8 % bits == 0:
        starts = np.arange(0, 8, bits, dtype=np.uint8)
        integers = stored[..., np.newaxis] >> starts & np.uint8((1 << bits) - 1)
    else:
        each = np.unpackbits(stored, axis=-1, bitorder="little")
        each = each[..., : each.shape[-1] // bits * bits].reshape(*each.shape[:-1], -1, bits)
        integers = np.packbits(each, axis=-1, bitorder="little")
    return np.asarray(integers).reshape(*stored.shape[:-1], -1)


def scaled_rows(
    integers: NDArray[np.integer[Any]],
    zero: NDArray[np.integer[Any]] | int,
    scale: NDArray[np.float32],
    group_of: NDArray[np.int64] | None = None,
) -> ScaledRows:
    """Integers (n, K) less the zeros of their groups, an int or (n, G), and the scales (n, G).

    `group_of` has the group of each column where groups do not follow each other.
    """
    if group_of is not None:
        numbers = integers - (zero if isinstance(zero, int) else zero[:, group_of])
        return ScaledRows(numbers=numbers, scale=scale[:, group_of])
    groups = integers.reshape(*scale.shape, -1)
    numbers = groups - (zero if isinstance(zero, int) else zero[..., np.newaxis])
    return ScaledRows(numbers=numbers.reshape(integers.shape), scale=scale)


def columns_of_a_scale(parts: StoredParts, part: str, columns: int, scales: int) -> int:
    """How many columns of a matrix share a scale; raises BadFile unless all have as many."""
    if columns % scales:
        raise parts.refused(part, f"has {scales} scales of a row, the matrix has {columns} columns")
    return columns // scales


def read_groups(parts: StoredParts, part: str, groups: int) -> NDArray[np.int64]:
    """The group of each column, (K,); raises BadFile for a group that does not exist."""
    group_of = parts.read(part).astype(np.int64)
    if group_of.min() < 0 or group_of.max() >= groups:
        raise parts.refused(part, f"has groups that are not 0 to {groups - 1}")
    return group_of
