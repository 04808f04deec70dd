"""Products of rows with a matrix of bf16, which stays as it is stored: (N, K)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.activations import require_rows
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.matmul import DECODE_ROWS
from hearthd.models.dsl.ops.record import Kernel, Sample, equal_share, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

__all__ = ["linear_bf16", "linear_rounded_bf16"]

# Tiles compute 32 outputs together. A workgroup has at most _MAX_BLOCKS times as many, of rows that
# fit into a core's second cache.
_BLOCK, _MAX_BLOCKS, _MAX_ROWS, _MIN_WORKGROUPS = 32, 32, 256, 8


def _share(outputs: int, parts: int) -> int:
    """The outputs of a workgroup, if workgroups divide the rows into parts."""
    blocks = -(-outputs // _BLOCK)
    workgroups = -(-_MIN_WORKGROUPS // parts)
    return equal_share(blocks, workgroups=workgroups, largest=_MAX_BLOCKS) * _BLOCK


def _limits(types: Types, _: Attrs) -> None:
    x, weight = types
    require_rows(x)
    require(x.shape[0] <= DECODE_ROWS, f"at most {DECODE_ROWS} rows")
    require(weight == TensorType((weight.shape[0], x.shape[1]), DType.BF16), "bf16 (N, K)")


def _kernel(types: Types, result: TensorType, _: Attrs) -> Kernel:
    """A kernel whose workgroups share the outputs."""
    (rows, columns), outputs = types[0].shape, result.shape[1]
    share = _share(outputs, 1)
    return Kernel(
        function="linear_bf16",
        sizes=(share, rows, outputs, columns),
        workgroups=-(-outputs // share),
        private=(0, share * columns),
    )


def _linear_bf16(x: Tensor, weight: Tensor) -> Tensor:
    wide = ops.convert(weight, dtype=x.dtype)
    return ops.dot_general(x, wide, batch=((), ()), contract=((1,), (1,)), dtype=x.dtype)


def _linear_rounded_bf16(x: Tensor, weight: Tensor) -> Tensor:
    return ops.dot_general(x, weight, batch=((), ()), contract=((1,), (1,)), dtype=DType.F32)


def _bf16(array: Array) -> Array:
    return array.astype(DType.BF16.numpy)


linear_bf16: Fused = Fused(
    name="linear_bf16",
    doc=f"At most {DECODE_ROWS} rows f32 (M, K), as they are, times a matrix bf16 (N, K).",
    reference=_linear_bf16,
    no_gradient="`times_weight` has the gradient",
    limits=_limits,
    kernel=_kernel,
    blocks=True,
    rows_apart=True,
    samples=lambda rng: [
        Sample((normal(rng, rows, columns), _bf16(normal(rng, 3, columns))))
        for rows, columns in ((1, 48), (7, 21))
    ],
)


def _rounded_limits(types: Types, _: Attrs) -> None:
    x, weight = types
    require(x.rank == 2 and x.dtype is DType.BF16, "rows bf16 (M, K)")
    require(weight == TensorType((weight.shape[0], x.shape[1]), DType.BF16), "bf16 (N, K)")


def _rounded_kernel(types: Types, result: TensorType, _: Attrs) -> Kernel:
    """A kernel whose workgroups share the rows, if there are many, and then the outputs."""
    (rows, columns), outputs = types[0].shape, result.shape[1]
    parts = -(-rows // _MAX_ROWS)
    share = _share(outputs, parts)
    return Kernel(
        function="linear_rounded_bf16",
        sizes=(share, min(rows, _MAX_ROWS), rows, outputs, columns),
        workgroups=parts * -(-outputs // share),
        private=(0, share * columns) if parts == 1 else (),
    )


linear_rounded_bf16: Fused = Fused(
    name="linear_rounded_bf16",
    doc="Rows that were rounded to bf16 (M, K), times a matrix bf16 (N, K), summed in f32.",
    reference=_linear_rounded_bf16,
    no_gradient="`times_weight` has the gradient",
    limits=_rounded_limits,
    kernel=_rounded_kernel,
    blocks=True,
    rows_apart=True,
    samples=lambda rng: [
        Sample((_bf16(normal(rng, rows, columns)), _bf16(normal(rng, 3, columns))))
        for rows, columns in ((1, 64), (9, 5))
    ],
)


def times_bf16(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T for x f32 (..., K) and W bf16 (N, K): as `f.times_weight`, by the kernels."""
    rows = f.flatten_rows(x)
    if rows.shape[0] <= DECODE_ROWS:
        product = linear_bf16(rows, weight)
    else:
        product = linear_rounded_bf16(ops.convert(rows, dtype=DType.BF16), weight)
    return ops.reshape(product, shape=(*x.shape[:-1], product.shape[1]))
