"""Products with matrices of int8 in groups (models/dsl/grouped.py), by kernels of our own.

The compiler's own form of such a product is several times slower, and the more so the more rows
there are. The kernels are in models/dsl/kernels/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.dsl import grouped
from models.dsl.ops.record import Array, Attrs, Kernel, NoGradient, Op, Sample, operands, wanted
from models.dsl.ops.samples import normal
from models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from models.dsl.ops.record import Types

__all__ = ["embedding_grouped", "linear_grouped"]

# A workgroup computes so many blocks of sixteen outputs at most, and there are so many at least.
_MOST_BLOCKS, _LEAST_WORKGROUPS = 64, 8
# Blocks that are unpacked at a time, so that evaluating a large matrix never holds it in f32.
_EVALUATED = 1024
# The smallest scale of a group of activations: 127 divided by it is finite.
_TINY = np.float32(2.0**-100)

_NO_GRADIENT = NoGradient("its weights are rounded: train with f32 ones")


def _matrix(weight: TensorType, scale: TensorType) -> tuple[int, int]:
    """(N, K); refuses what is not stored so."""
    shape = grouped.matrix_shape(weight.shape)
    wanted(
        weight.dtype is DType.I8
        and scale == TensorType((*weight.shape[:2], grouped.ROWS), DType.F16),
        "a weight i8 (N / 16, K / 32, 8, 64) and a scale f16 (N / 16, K / 32, 16)",
    )
    return shape


# --- linear_grouped


def _infer_linear(types: Types, _: Attrs) -> TensorType:
    x, weight, scale = operands(types, 3)
    rows, columns = _matrix(weight, scale)
    wanted(
        x.dtype in (DType.F32, DType.F64) and x.rank == 2 and x.shape[1] == columns,
        "rows f32 (M, K) with the weight's K",
    )
    return x.with_shape(x.shape[0], rows)


def _rounded(x: Array) -> Array:
    """x as the kernel reads it: per group of columns, a scale and 16 bits in two parts of eight."""
    groups = x.reshape(x.shape[0], -1, grouped.GROUP)
    largest = np.maximum(np.abs(groups).max(axis=2, keepdims=True), _TINY)
    scaled = groups * (np.float32(127) / largest)
    coarse = np.rint(scaled)
    fine = np.rint((scaled - coarse) * np.float32(254))
    parts = coarse + fine * np.float32(1 / 254)
    return np.asarray(parts * (largest * np.float32(1 / 127))).reshape(x.shape)


def _evaluate_linear(arrays: tuple[Array, ...], _: Attrs) -> Array:
    x, weight, scale = arrays
    x = _rounded(x)
    return np.concatenate(
        [
            x @ grouped.unpack(weight[i : i + _EVALUATED], scale[i : i + _EVALUATED]).T
            for i in range(0, len(weight), _EVALUATED)
        ],
        axis=1,
    )


def _lower_linear(types: Types, result: TensorType, _: Attrs) -> Kernel:
    rows, columns = types[0].shape
    outputs = result.shape[1]
    blocks = outputs // grouped.ROWS
    own = min(_MOST_BLOCKS, -(-blocks // _LEAST_WORKGROUPS))
    return Kernel(
        function="linear_grouped",
        sizes=(own, rows, outputs, columns),
        workgroups=-(-blocks // own),
    )


def _sample(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array]:
    integers = rng.integers(-127, 128, size=(rows, columns), dtype=np.int8)
    scales = rng.uniform(0.001, 0.01, size=(rows, columns // grouped.GROUP)).astype(np.float16)
    return grouped.pack(integers, scales)


linear_grouped: Op = Op(
    name="linear_grouped",
    doc="Rows (M, K), rounded to 16 bits a group of 32 columns, times a matrix (N, K) in groups.",
    infer=_infer_linear,
    evaluate=_evaluate_linear,
    lower=_lower_linear,
    vjp=_NO_GRADIENT,
    samples=lambda rng: [
        Sample((normal(rng, 1, 32), *_sample(rng, 16, 32))),
        Sample((normal(rng, 11, 32), *_sample(rng, 16, 32))),
    ],
)


# --- embedding_grouped


def _infer_embedding(types: Types, _: Attrs) -> TensorType:
    ids, weight, scale = operands(types, 3)
    columns = _matrix(weight, scale)[1]
    wanted(ids.dtype is DType.I32 and ids.rank == 1, "ids i32 (M,)")
    return TensorType((*ids.shape, columns), DType.F32)


embedding_grouped: Op = Op(
    name="embedding_grouped",
    doc="Rows of a matrix (V, E) in groups, by their ids: f32 (M, E).",
    infer=_infer_embedding,
    evaluate=lambda arrays, _attrs: grouped.unpack_rows(*arrays),
    lower=lambda types, result, _: Kernel(
        function="embedding_grouped", sizes=(result.shape[1],), workgroups=types[0].size
    ),
    vjp=_NO_GRADIENT,
    samples=lambda rng: [
        Sample((np.array([13, 0, 15], np.int32), *_sample(rng, 16, 32))),
    ],
)
