"""Products with matrices of integers of 4, 5, 6 or 12 bits in groups, and lookups of their rows.

The forms of such a matrix are those of `packing.SmallForm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops, packing
from hearthd.models.dsl.activations import (
    require_bits,
    require_rows,
    rounded,
    steps,
)
from hearthd.models.dsl.composite import Fused, composite
from hearthd.models.dsl.fused.grouped_products import (
    by_rows,
    product_kernel,
    scaled,
    times_transposed,
)
from hearthd.models.dsl.ops.record import Kernel, Reads, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.packing import SmallForm
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

__all__ = ["FORMS", "INT6", "INT12", "embedding_small", "linear_small"]

INT6 = SmallForm(bits=6, columns=packing.GROUP // 2)
INT12 = SmallForm(bits=12)

# Forms that have kernels: each one has a file linear_NAME.c and a file embedding_NAME.c.
FORMS = (
    SmallForm(bits=4),
    SmallForm(bits=4, minimum=True),
    SmallForm(bits=5),
    SmallForm(bits=5, minimum=True),
    INT6,
    INT12,
)


def form_of(arrays: Types, attrs: Attrs) -> SmallForm:
    """The form of stored arrays; raises TypeRuleError unless it is one of FORMS."""
    low, minimum = arrays[0], attrs["minimum"]
    scale = arrays[-2] if minimum else arrays[-1]
    require(low.rank == 4 and scale.rank == 3, "integers of rank 4 and a scale of rank 3")
    groups = low.shape[1]
    columns = packing.GROUP * groups // scale.shape[1]
    form = SmallForm(bits=attrs["bits"], columns=columns, minimum=minimum)
    require(form in FORMS, f"a form with a kernel, got {form}")
    shapes = form.shapes(low.shape[0] * packing.ROWS, groups * packing.GROUP)
    expected = {
        name: TensorType(shape, DType.I8 if name in ("low", "high") else DType.F16)
        for name, shape in shapes.items()
    }
    described = ", ".join(f"{name} {type_}" for name, type_ in expected.items())
    require(arrays == tuple(expected.values()), described)
    return form


def integers(low: Tensor, high: Tensor | None, form: SmallForm) -> Tensor:
    """The unsigned integers i8 (..., 8, 64) of their stored parts, of 4 to 6 bits."""
    lower = _unpacked(low, form.low_bits)
    if high is None:
        return lower
    upper = _unpacked(high, form.bits - form.low_bits)
    return ops.bitwise_or(lower, ops.shift_left(upper, ops.full_like(upper, form.low_bits)))


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    """The quads (..., 8, 64) of 1, 2 or 4 bits each, as `packing` has them in bytes."""
    places = range(0, 8, bits)
    if bits == 4:
        quads = [_taken(packed, at, bits) for at in places]
    else:
        planes = (f.narrow(packed, 2, byte, byte + 1) for byte in range(packed.shape[2]))
        quads = [_taken(plane, at, bits) for plane in planes for at in places]
    return ops.concatenate(*quads, axis=2)


def _taken(x: Tensor, at: int, count: int) -> Tensor:
    """`count` bits of each byte, from bit `at`."""
    moved = ops.shift_right(x, ops.full_like(x, at)) if at else x
    return ops.bitwise_and(moved, ops.full_like(x, (1 << count) - 1))


def dequantized_small(arrays: tuple[Tensor, ...], form: SmallForm, dtype: DType) -> Tensor:
    """The real weights (N, K) of stored arrays."""
    low, *rest = arrays
    high = rest.pop(0) if form.bits > 4 else None
    values = by_rows(integers(low, None if form.is_wide else high, form), dtype)
    if form.zero:
        values = values - float(form.zero)
    if form.is_wide:
        assert high is not None
        values = values * (1 / 16) + by_rows(high, dtype)
    return scaled(values, *rest)


@composite(blocks=True)
def small_product(x: Tensor, *arrays: Tensor, bits: int, minimum: bool) -> Tensor:
    """x W^T for x (M, K) and a matrix W (N, K) of integers of a form."""
    form = form_of(tuple(array.type for array in arrays), {"bits": bits, "minimum": minimum})
    return times_transposed(x, dequantized_small(arrays, form, x.dtype))


def sample_small(rng: np.random.Generator, form: SmallForm, rows: int, columns: int) -> list[Array]:
    """A stored matrix of all possible integers."""
    low, dtype = (-1 << (form.bits - 1), np.int16) if form.is_wide else (0, np.uint8)
    stored = rng.integers(low, low + (1 << form.bits), size=(rows, columns), dtype=dtype)
    groups = (rows, columns // form.columns)
    scale = rng.uniform(0.001, 0.01, size=groups).astype(np.float16)
    minimum = rng.uniform(-0.1, 0, size=groups).astype(np.float16) if form.minimum else None
    return list(packing.pack_small(form, stored, scale, minimum))


def _attrs(form: SmallForm) -> dict[str, Any]:
    return {"bits": form.bits, "minimum": form.minimum}


def _linear_small(
    x: Tensor, *arrays: Tensor, bits: int, minimum: bool, activation_bits: int = 16
) -> Tensor:
    rows = rounded(x, steps(bits, activation_bits))
    return small_product(rows, *arrays, bits=bits, minimum=minimum)


def _limits(types: Types, attrs: Attrs) -> None:
    require_rows(types[0])
    require_bits(attrs)
    form_of(types[1:], attrs)


linear_small: Fused = Fused(
    name="linear_small",
    doc="Rows (M, K), rounded to 16 bits per group of 32 columns, or to 12 beside integers "
    "of 4 bits, or to 8 (`activation_bits`), times a matrix (N, K) of integers of 4 to 6 or 12 "
    "bits in groups.",
    reference=_linear_small,
    limits=_limits,
    kernel=lambda types, result, attrs: product_kernel(
        f"linear_{form_of(types[1:], attrs).name}", types, result.shape[1], attrs
    ),
    samples=lambda rng: [
        Sample((normal(rng, rows, 64), *sample_small(rng, form, 16, 64)), _attrs(form) | more)
        for rows, form, more in zip(
            (1, 11, 2, 3), FORMS[2:], ({}, {"activation_bits": 8}, {}, {}), strict=True
        )
    ],
)


def _embedding_small(ids: Tensor, *arrays: Tensor, bits: int, minimum: bool) -> Tensor:
    form = form_of(tuple(array.type for array in arrays), {"bits": bits, "minimum": minimum})
    block = ops.shift_right(ids, ops.full_like(ids, packing.ROWS.bit_length() - 1))
    row = ops.bitwise_and(ids, ops.full_like(ids, packing.ROWS - 1))
    blocks = tuple(ops.gather(array, block, axis=0) for array in arrays)
    rows = dequantized_small(blocks, form, DType.F32)
    first = ops.iota(shape=ids.shape, axis=0, dtype=DType.I32) * packing.ROWS
    return ops.gather(rows, first + row, axis=0)


def _embedding_limits(types: Types, attrs: Attrs) -> None:
    require(types[0].dtype is DType.I32 and types[0].rank == 1, "ids i32 (M,)")
    form_of(types[1:], attrs)


embedding_small: Fused = Fused(
    name="embedding_small",
    doc="Rows of a matrix (V, E) of integers of 4 to 6 or 12 bits in groups, by their ids: "
    "f32 (M, E).",
    reference=_embedding_small,
    limits=_embedding_limits,
    kernel=lambda types, result, attrs: Kernel(
        function=f"embedding_{form_of(types[1:], attrs).name}",
        sizes=(result.shape[1],),
        workgroups=types[0].size,
    ),
    samples=lambda rng: [
        Sample((np.array([13, 0, 31], np.int32), *sample_small(rng, form, 32, 32)), _attrs(form))
        for form in FORMS[2:]
    ],
    reads=Reads.LOOKED_UP,
)
