"""Attention over a KV cache of 6 and 4 bits, its new rows, and the rotation of queries for it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.functions.int4_cache import CACHE_GROUP, KEY_BITS, VALUE_BITS
from hearthd.models.dsl.fused.cache_attention import (
    attention_kernel,
    integer_samples,
    limit_shapes,
    new_rows,
    row_kernel,
)
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

__all__ = ["int4_cache_attention", "rotate_heads", "write_packed_rows", "write_packed_scales"]


def _require_groups(heads: TensorType) -> None:
    """Raises TypeRuleError for heads (N, H, D) that the kernels cannot take."""
    require(heads.rank == 3 and heads.dtype in (DType.F32, DType.F64), "heads f32 (N, H, D)")
    require(heads.shape[2] % CACHE_GROUP == 0, f"heads of a multiple of {CACHE_GROUP}")


def _limits(types: Types, attrs: Attrs) -> None:
    query, key, value, key_scale, value_scale, start, *sinks = types
    _require_groups(query)
    integers = _integers(key_scale)
    limit_shapes(query, integers, start, sinks, attrs)
    for packed, scales, bits in ((key, key_scale, KEY_BITS), (value, value_scale, VALUE_BITS)):
        rows, columns = integers.shape
        require(scales == key_scale and scales.dtype is DType.F16, "scales f16")
        expected = TensorType((rows, columns * bits // 8), DType.I8)
        require(packed == expected, f"a cache {expected}")


def _integers(scales: TensorType) -> TensorType:
    """A cache (R, G * D) of the integers that have the scales (R, K)."""
    require(scales.rank == 2, "scales (R, K)")
    return TensorType((scales.shape[0], scales.shape[1] * CACHE_GROUP), DType.I8)


def _kernel(types: Types, _: TensorType, attrs: Attrs) -> Kernel:
    suffix = "_i4_sinks" if len(types) > 6 else "_i4"
    return attention_kernel(types[0], _integers(types[3]), types[5], attrs, suffix)


def _cache(rng: np.random.Generator) -> tuple[Array, ...]:
    key, value = (
        rng.integers(-128, 128, (7, 8 * n), dtype=np.int8) for n in (KEY_BITS, VALUE_BITS)
    )
    scales = (rng.uniform(-0.3, 0.3, (7, 2)).astype(np.float16) for _ in range(2))
    return key, value, *scales


int4_cache_attention: Fused = Fused(
    name="int4_cache_attention",
    doc="`f.int4_cache_attention`: softmax(scale * q k^T) v over the KV cache of one sequence, of "
    "keys of 6 bits and values of 4 with a scale for each 32 columns of a row, rotated back.",
    reference=f.int4_cache_attention.op.reference,
    no_gradient=f.int4_cache_attention.op.no_gradient,
    limits=_limits,
    kernel=_kernel,
    samples=lambda rng: integer_samples(rng, _cache(rng)),
)


def _row_limits(types: Types, attrs: Attrs, dtype: DType, values: int) -> None:
    """Raises TypeRuleError unless a cache has `values` of a dtype for each group of columns."""
    cache, places, x = types
    _require_groups(x)
    require(attrs["bits"] in (KEY_BITS, VALUE_BITS), f"{KEY_BITS} or {VALUE_BITS} bits")
    columns = x.shape[1] * x.shape[2] // CACHE_GROUP * values
    require(
        cache == TensorType((cache.shape[0], columns), dtype), f"a cache {dtype} (R, {columns})"
    )
    require(places == TensorType(x.shape[:1], DType.I32), "a place i32 for each row")


def _row_kernel(function: str, types: Types, attrs: Attrs) -> Kernel:
    kernel = row_kernel(function, types[2])
    return dataclasses.replace(kernel, sizes=(*kernel.sizes, attrs["bits"]))


def _new_rows(rng: np.random.Generator, cache: Array, bits: int, *shape: int) -> Sample:
    return dataclasses.replace(new_rows(rng, cache, *shape), attrs={"bits": bits})


write_packed_rows: Fused = Fused(
    name="write_packed_rows",
    doc="`f.write_packed_rows`: a cache of 6 or 4 bits with new rows, rotated and rounded.",
    reference=f.write_packed_rows.op.reference,
    no_gradient=f.write_packed_rows.op.no_gradient,
    limits=lambda types, attrs: _row_limits(types, attrs, DType.I8, 4 * attrs["bits"]),
    kernel=lambda types, _, attrs: _row_kernel("write_packed_rows", types, attrs),
    samples=lambda rng: [
        _new_rows(rng, rng.integers(-128, 128, (7, 64), dtype=np.int8), 4, 3, 2, 64),
        _new_rows(rng, rng.integers(-128, 128, (5, 72), dtype=np.int8), 6, 1, 1, 96),
    ],
)

write_packed_scales: Fused = Fused(
    name="write_packed_scales",
    doc="`f.write_packed_scales`: writes the scales of new rows of a cache of 6 or 4 bits.",
    reference=f.write_packed_scales.op.reference,
    no_gradient=f.write_packed_scales.op.no_gradient,
    limits=lambda types, attrs: _row_limits(types, attrs, DType.F16, 1),
    kernel=lambda types, _, attrs: _row_kernel("write_packed_scales", types, attrs),
    samples=lambda rng: [
        _new_rows(rng, normal(rng, 7, 4).astype(np.float16), 4, 3, 2, 64),
        _new_rows(rng, normal(rng, 5, 3).astype(np.float16), 6, 1, 1, 96),
    ],
)


def _rotation_kernel(types: Types, _: TensorType, __: Attrs) -> Kernel:
    rows, heads, width = types[0].shape
    return Kernel(function="rotate_heads", sizes=(heads, width), workgroups=rows)


rotate_heads: Fused = Fused(
    name="rotate_heads",
    doc="`f.rotate_heads`: heads with each block of columns times a Hadamard matrix.",
    reference=f.rotate_heads.op.reference,
    limits=lambda types, _: _require_groups(types[0]),
    kernel=_rotation_kernel,
    rows_apart=True,
    samples=lambda rng: [
        Sample((normal(rng, 3, 2, 64),), {}),
        Sample((normal(rng, 1, 3, 96),), {}),
    ],
)
