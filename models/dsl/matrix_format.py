"""How matrices of integers are stored: one record, `MatrixFormat`, for each format.

A matrix (N, K) is stored in the order in which a product reads it, so nothing is laid out again
when a bundle is loaded: sixteen rows at a time, of these 32 columns at a time (a group), and in a
group four columns at a time (a quad), of all sixteen rows. The header kernels/product/matrix.h has
a picture of it, and product/grid.h `ROWS`, `GROUP` and `QUAD` again.

The bits of an integer are divided among planes, each an array. A plane of 8 bits has a byte for
each integer; of fewer bits, several quads share a byte: of 4 bits quad i and quad i + 4,
of 2 bits four quads that follow each other, of 1 bit all eight. A plane of digits in base 3 has
five quads in 64 bytes and three in 40 (models/dsl/base_three.py).

    PLANE    i8  (N / 16, K / 32, bits, 64), or (N / 16, K / 32, 1, 104) of digits
    scale    f16 (N / 16, K / 32, 16), or (N / 16, K / 16, 16) with a scale for 16 columns
    minimum  f16, of the shape of the scale, if there is one

A scale can be the exponent of a power of two: i8 in place of f16. And 64 to 256 columns (a
super-block) can share a scale and a minimum, which each group can multiply by small integers, as
llama.cpp's K-quants do, or by floats of 8 bits, as NVFP4 does.

    scale       f16 or f32 (N / 16, K / super-block, 16); the last one of a row can be shorter
    minimum     f16, of the shape of the scale, if there is one
    multiplier  i8 (N / 16, K / 32 or K / 16, bytes, 16): of 8 bits a byte for the scale and one for
                the minimum, of 4 bits both in one byte, the scale's in the low nibble. Without
                a minimum, the low nibble is for the first 16 columns of a group
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hearthd.models.dsl import grids
from hearthd.models.dsl.grids import SIGN_BYTES
from hearthd.models.dsl.types import DType, TensorType, TypeRuleError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hearthd.models.dsl.grids import Grid


ROWS = 16
GROUP = 32
QUAD = 4
QUADS = GROUP // QUAD
QUAD_BYTES = ROWS * QUAD
# The bytes of a group of digits in base 3 (base_three.py).
DIGIT_BYTES = 104

# ggml's kvalues_iq4nl (ggml-common.h): the values of IQ4_NL and IQ4_XS.
_IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# The values of the levels of grids (ggml-common.h), then the values of the other sign or, for IQ1
# (times 8), of the other offset. Kernels have the signs of IQ2 at bit 2 or 3.
_IQ3_XXS_VALUES = (4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62)
_IQ3_S_VALUES = (1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15)
_IQ2_VALUES = (8, 25, 43, 0, -8, -25, -43, 0, -8, -25, -43, 0) + (0,) * 4
_IQ1_VALUES = (-7, 1, 9, 0, -9, -1, 7, 0) + (0,) * 8
# Twice the values of E2M1, as ggml's kvalues_mxfp4 (OCP Microscaling Formats 1.0).
_FP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


@dataclass(frozen=True)
class Plane:
    """Some bits of each integer of a matrix: `bits` of them, from bit `start` on.

    If `has_digits`, the integer is a digit in base 3.
    """

    name: str
    start: int
    bits: int
    has_digits: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a group of sixteen rows, in bytes."""
        return (1, DIGIT_BYTES) if self.has_digits else (self.bits, QUAD_BYTES)


@dataclass(frozen=True, kw_only=True)
class Split:
    """A matrix as the sum of two; the upper one alone is an approximation.

    upper  the format of the upper bits; half of their range stands for the bits below
    lower  the format of the lower bits
    step   the product with the lower bits is multiplied by it before it is added
    """

    upper: MatrixFormat
    lower: MatrixFormat
    step: float = 1.0


@dataclass(frozen=True, kw_only=True)
class MatrixFormat:
    """How the integers of a matrix are stored, and which real weights they stand for.

    A weight is (integer - zero) / steps * scale + minimum, or values[integer] / steps * scale.

    name             of the format
    planes           the arrays of bits, in their order in a bundle
    columns          columns that share a scale, or a multiplier of one: 32 or 16
    super_block      columns that share a stored scale, if more than `columns`; otherwise 0
    minimum          whether each scale has a minimum
    multiplier_bits  bits of the integers that multiply the scale and the minimum of a super-block
                     for each `columns`: 8, signed, or 4, unsigned; 0 without such an array. 4 bits
                     without a minimum store n for the multiplier 2 n + 1
    multiplier_floats  whether multipliers of 8 bits are floats without a sign: E4M3
    scale            dtype of scales: F16, F32, or I8 for exponents: 2^(e - 127), or 0 for e = 0
    signed           whether integers are signed
    zero             the integer that stands for 0
    steps            how many steps of an integer, or of a value, equal one scale: a power of two
    values           the sixteen values that integers of 4 bits index, each in -127 to 127
    grid             the levels, the lowest bits of integers; the plane, if any, has their signs
    split            the formats of its parts, if logits can be computed from the upper one
    table            the format of an embedding table or an output head; None: this one
    """

    name: str
    planes: tuple[Plane, ...]
    columns: int = GROUP
    super_block: int = 0
    minimum: bool = False
    multiplier_bits: int = 0
    multiplier_floats: bool = False
    scale: DType = DType.F16
    signed: bool = False
    zero: int = 0
    steps: int = 1
    values: tuple[int, ...] = ()
    grid: Grid | None = None
    split: Split | None = None
    table: MatrixFormat | None = None

    def __post_init__(self) -> None:
        """Kernels find four bits in the first plane, and a fifth in the second one."""
        planes = [(plane.start, plane.bits) for plane in self.planes]
        if self.grid is not None:
            assert planes in ([], [(self.grid.level_bits, 1)]), self.name
            assert self.values, self.name
            return
        assert self.bits not in (4, 5) or planes == [(0, 4), (4, 1)][: self.bits - 3], self.name
        assert not self.values or (self.bits, len(self.values)) == (4, 16), self.name
        assert self.multiplier_bits in ((0, 4, 8) if self.minimum else (0, 8)), self.name
        assert self.super_block or not self.multiplier_bits, self.name
        assert self.super_block % GROUP == 0, self.name
        assert not (self.exponents and self.multiplier_bits), self.name

    @property
    def exponents(self) -> bool:
        """Whether scales are exponents of two."""
        return self.scale is DType.I8

    @property
    def bits(self) -> int:
        """The bits of an integer."""
        if self.grid is not None:
            return self.grid.level_bits + 1
        return max(plane.start + plane.bits for plane in self.planes)

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest integer of a format without a grid."""
        if any(plane.has_digits for plane in self.planes):
            return 0, 2
        low = -1 << (self.bits - 1) if self.signed else 0
        return low, low + (1 << self.bits) - 1

    @property
    def operand_bits(self) -> int:
        """The bits of an operand of products: an integer, or a value plus `operand_zero`."""
        return (2 * self.operand_zero or 256).bit_length() - 1 if self.values else self.bits

    @property
    def operand_zero(self) -> int:
        """The operand that stands for 0. Small values are made positive, with 5 or 7 bits."""
        largest = max(map(abs, self.values), default=0)
        if not largest:
            return self.zero
        return 16 if largest < 16 else 64 if largest < 64 else 0

    @property
    def missing(self) -> int:
        """Half of the range of the bits that no plane has, below the lowest one; 0 if none are."""
        start = 0 if self.grid else min(plane.start for plane in self.planes)
        return 1 << start >> 1

    @property
    def has_multipliers(self) -> bool:
        """Whether integers multiply the scales of super-blocks."""
        return bool(self.multiplier_bits or (self.grid and self.grid.multiplier_bits))

    @property
    def symbol(self) -> str:
        """The name of the format in the names of kernels."""
        return self.name.replace("-", "_")

    def arrays(self, rows: int, columns: int) -> dict[str, TensorType]:
        """The stored arrays of a matrix by name.

        Raises TypeRuleError unless the rows are a multiple of 16, and the columns of 32.
        """
        if rows % ROWS or columns % GROUP:
            raise TypeRuleError(
                f"a matrix in groups has a multiple of {ROWS} rows and of {GROUP} columns, "
                f"this one is {rows} x {columns}"
            )
        blocks, groups = rows // ROWS, columns // GROUP
        arrays = {
            name: TensorType((blocks, groups, count, bytes_), DType.I8)
            for name, count, bytes_ in self._integer_arrays()
        }
        factors = ("scale", "minimum") if self.minimum else ("scale",)
        scales = -(-columns // (self.super_block or self.columns))
        for name in factors:
            dtype = self.scale if name == "scale" else DType.F16
            arrays[name] = TensorType((blocks, scales, ROWS), dtype)
        if self.multiplier_bits:
            in_group = GROUP // self.columns
            bits = len(factors) * self.multiplier_bits
            parts = in_group if bits >= 8 else in_group * bits // 8
            shape = (blocks, groups * parts, max(1, bits // 8), ROWS)
            arrays["multiplier"] = TensorType(shape, DType.I8)
        return arrays

    def _integer_arrays(self) -> Iterator[tuple[str, int, int]]:
        """The arrays of the integers of a matrix: name, count and bytes of each."""
        if self.grid is not None:
            yield "index", GROUP // self.grid.columns * ROWS // QUAD_BYTES, QUAD_BYTES
            if self.grid.extra_bytes not in (0, SIGN_BYTES):
                yield "extra", self.grid.extra_bytes, ROWS
        for plane in self.planes:
            yield plane.name, *plane.shape

    @property
    def integer_arrays(self) -> int:
        """The number of arrays with integers, which come first in a matrix."""
        return len([*self._integer_arrays()])

    def require(self, arrays: tuple[TensorType, ...]) -> None:
        """Raise TypeRuleError unless these are the stored arrays of a matrix."""
        plane = arrays[0]
        if plane.rank != 4:
            raise TypeRuleError(f"expected integers of rank 4, got {plane}")
        expected = self.arrays(plane.shape[0] * ROWS, plane.shape[1] * GROUP)
        if arrays != tuple(expected.values()):
            described = ", ".join(f"{name} {type_}" for name, type_ in expected.items())
            raise TypeRuleError(f"expected {described}")


_LOW = Plane("low", 0, 4)
_LOW_2, _INT6_HIGH = Plane("low", 0, 2), Plane("high", 2, 4)
_INT8_UPPER = Plane("upper", 4, 4)

INT2_SUPER_MIN = MatrixFormat(
    name="int2-g16-s256-min",
    planes=(_LOW_2,),
    columns=16,
    super_block=256,
    minimum=True,
    multiplier_bits=4,
)
INT3_SUPER = MatrixFormat(
    name="int3-g16-s256",
    planes=(_LOW_2, Plane("high", 2, 1)),
    columns=16,
    super_block=256,
    zero=4,
    multiplier_bits=8,
)
INT4 = MatrixFormat(name="int4-g32", planes=(_LOW,), zero=8)
INT4_MIN = MatrixFormat(name="int4-g32-min", planes=(_LOW,), minimum=True)
INT4_SUPER_MIN = MatrixFormat(
    name="int4-g32-s256-min", planes=(_LOW,), super_block=256, minimum=True, multiplier_bits=8
)
INT5 = MatrixFormat(name="int5-g32", planes=(_LOW, Plane("high", 4, 1)), zero=16)
INT5_MIN = MatrixFormat(name="int5-g32-min", planes=INT5.planes, minimum=True)
INT5_HALVES = MatrixFormat(name="int5-g16", planes=INT5.planes, columns=16, zero=16)
INT5_SUPER_MIN = MatrixFormat(
    name="int5-g32-s256-min", planes=INT5.planes, super_block=256, minimum=True, multiplier_bits=8
)
INT6_SUPER = replace(
    INT3_SUPER,
    name="int6-g16-s256",
    planes=(_LOW_2, _INT6_HIGH),
    zero=32,
    split=Split(
        upper=replace(INT3_SUPER, name="int6-g16-s256-upper", planes=(_INT6_HIGH,), zero=32),
        lower=replace(INT3_SUPER, name="int2-g16-s256", planes=(_LOW_2,), zero=2),
    ),
)
INT8_HALVES = MatrixFormat(
    name="int8-g32-halves",
    planes=(_INT8_UPPER, Plane("lower", 0, 4)),
    signed=True,
    split=Split(
        upper=MatrixFormat(name="int8-g32-upper", planes=(_INT8_UPPER,), signed=True),
        lower=INT4,
    ),
)
INT8 = MatrixFormat(
    name="int8-g32", planes=(Plane("weight", 0, 8),), signed=True, table=INT8_HALVES
)
# Zero is 8, so that the upper eight bits alone are the nearest int8.
INT12 = MatrixFormat(
    name="int12-g32",
    planes=(_LOW, Plane("high", 4, 8)),
    signed=True,
    zero=8,
    steps=16,
    split=Split(upper=INT8, lower=INT4, step=1 / 16),
)
IQ4 = MatrixFormat(name="iq4-g32", planes=(_LOW,), values=_IQ4_VALUES)

IQ4_SUPER = MatrixFormat(
    name="iq4-g32-s256", planes=(_LOW,), values=_IQ4_VALUES, super_block=256, multiplier_bits=8
)
_IQ2_SIGN, _IQ3_SIGN = (Plane("sign", 2, 1),), (Plane("sign", 3, 1),)
IQ3_XXS = MatrixFormat(
    name="iq3-xxs",
    planes=_IQ3_SIGN,
    values=_IQ3_XXS_VALUES,
    super_block=256,
    steps=4,
    grid=grids.IQ3_XXS,
)
IQ3_S = MatrixFormat(
    name="iq3-s",
    planes=_IQ3_SIGN,
    values=_IQ3_S_VALUES,
    super_block=256,
    multiplier_bits=8,
    grid=grids.IQ3_S,
)
IQ2_XXS = MatrixFormat(
    name="iq2-xxs",
    planes=_IQ2_SIGN,
    values=_IQ2_VALUES,
    super_block=256,
    steps=8,
    grid=grids.IQ2_XXS,
)
IQ2_XS = MatrixFormat(
    name="iq2-xs",
    planes=_IQ2_SIGN,
    values=_IQ2_VALUES,
    columns=16,
    super_block=256,
    multiplier_bits=4,
    steps=8,
    grid=grids.IQ2_XS,
)
IQ2_S = replace(IQ2_XS, name="iq2-s", grid=grids.IQ2_S)
IQ1_S = MatrixFormat(
    name="iq1-s",
    planes=(),
    values=_IQ1_VALUES,
    super_block=256,
    steps=8,
    grid=grids.IQ1_S,
)
IQ1_M = replace(IQ1_S, name="iq1-m", columns=16, multiplier_bits=4, grid=grids.IQ1_M)
MXFP4 = MatrixFormat(name="mxfp4-g32", planes=(_LOW,), values=_FP4_VALUES, scale=DType.I8)
NVFP4 = MatrixFormat(
    name="nvfp4-g16-s256",
    planes=(_LOW,),
    values=_FP4_VALUES,
    columns=16,
    super_block=256,
    multiplier_bits=8,
    multiplier_floats=True,
    scale=DType.F32,
)
INT1 = MatrixFormat(name="int1-g128", planes=(Plane("weight", 1, 1),), super_block=128, zero=2)
INT2_64 = MatrixFormat(name="int2-g64", planes=(_LOW_2,), super_block=64, zero=1)
INT2 = MatrixFormat(name="int2-g256", planes=(_LOW_2,), super_block=256, zero=1)
TERNARY = MatrixFormat(
    name="ternary-g256",
    planes=(Plane("digits", 0, 2, has_digits=True),),
    super_block=256,
    zero=1,
)

# The formats of matrices.
STORED = (
    INT2_SUPER_MIN, INT3_SUPER, INT4, INT4_MIN, INT4_SUPER_MIN, INT5, INT5_MIN, INT5_HALVES,
    INT5_SUPER_MIN, INT6_SUPER, INT8, INT12, IQ4, IQ4_SUPER, IQ3_XXS, IQ3_S, IQ2_XXS, IQ2_XS,
    IQ2_S, IQ1_S, IQ1_M, MXFP4, NVFP4, INT1, INT2_64, INT2, TERNARY,
)  # fmt: skip
_TABLES = tuple(stored.table or stored for stored in STORED)
_PARTS = [
    part for table in _TABLES if table.split for part in (table.split.upper, table.split.lower)
]
# Every format by name, also the formats of tables and of the parts of a matrix.
FORMATS: Mapping[str, MatrixFormat] = {entry.name: entry for entry in (*STORED, *_TABLES, *_PARTS)}
