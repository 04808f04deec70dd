"""Products of tensors."""

from __future__ import annotations

import math

import numpy as np

from hearthd.models.dsl.graph import OPERATORS, Apply, Tensor
from hearthd.models.dsl.ops.elementwise import convert
from hearthd.models.dsl.ops.record import (
    Array,
    Attrs,
    Lowering,
    Op,
    Reads,
    Sample,
    Types,
    operands,
    require,
)
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.ops.shape import reshape, transpose
from hearthd.models.dsl.types import NARROW, NUMBERS, DType, TensorType

__all__ = ["dot_general", "matmul", "project"]

# Elements of a low-precision operand that are widened at a time, so that evaluating a large
# matrix never holds a second copy of it.
_BLOCK = 1 << 22

# A decode reads one token of each of at most this many sequences. For so few rows, twice the
# arithmetic is cheap, since reading a large matrix takes the time; and all batch sizes round alike.
DECODE_ROWS = 8


def free_axes(rank: int, batch: tuple[int, ...], contract: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of an operand that are neither batched nor summed: the rows or columns."""
    return tuple(axis for axis in range(rank) if axis not in batch + contract)


def _accumulated(types: Types, into: DType) -> None:
    """The inputs have one dtype; sums are kept in 4 bytes at least, of the same kind."""
    left, right = operands(types, 2)
    dtype = left.dtype
    require(dtype is right.dtype and dtype in NUMBERS, "two inputs of one dtype, of numbers")
    require(
        into in NUMBERS
        and into.is_float == dtype.is_float
        and into.numpy.itemsize >= max(4, dtype.numpy.itemsize),
        "to sum in a dtype of its kind that is as wide, and has 4 bytes at least",
    )


def _infer(types: Types, attrs: Attrs) -> TensorType:
    _accumulated(types, attrs["dtype"])
    (left_batch, right_batch), (left_sum, right_sum) = attrs["batch"], attrs["contract"]
    left, right = types

    def extents(tensor_type: TensorType, axes: tuple[int, ...]) -> tuple[int, ...]:
        require(
            all(0 <= axis < tensor_type.rank for axis in axes), f"axes below {tensor_type.rank}"
        )
        return tuple(tensor_type.shape[axis] for axis in axes)

    shared = extents(left, left_batch)
    require(shared == extents(right, right_batch), "equal batch extents")
    require(extents(left, left_sum) == extents(right, right_sum), "equal contracted extents")
    rows = extents(left, free_axes(left.rank, left_batch, left_sum))
    columns = extents(right, free_axes(right.rank, right_batch, right_sum))
    return TensorType(shared + rows + columns, attrs["dtype"])


def _evaluate(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    (left_batch, right_batch), (left_sum, right_sum) = attrs["batch"], attrs["contract"]
    left, right = arrays
    left_free = free_axes(left.ndim, left_batch, left_sum)
    right_free = free_axes(right.ndim, right_batch, right_sum)

    def matrices(array: Array, *groups: tuple[int, ...]) -> Array:
        """The axes of each group as one axis."""
        shape = [math.prod(array.shape[axis] for axis in group) for group in groups]
        return array.transpose([axis for group in groups for axis in group]).reshape(shape)

    dtype: DType = attrs["dtype"]
    product = _matmul(
        matrices(left, left_batch, left_free, left_sum),
        matrices(right, right_batch, right_free, right_sum),
        dtype,
    )
    shape = [left.shape[axis] for axis in left_batch + left_free] + [
        right.shape[axis] for axis in right_free
    ]
    return product.reshape(shape)


def _matmul(left: Array, right: Array, dtype: DType) -> Array:
    """(B, M, K) times (B, N, K) transposed, accumulated in `dtype`: (B, M, N).

    NumPy multiplies only f32 and f64 fast. bf16 and f16 products are exact in f32, sums of i8
    products in f64, so narrower operands are widened to those, some rows at a time.
    """
    if left.dtype in (np.float32, np.float64):
        return np.asarray(np.matmul(left, right.swapaxes(1, 2)), dtype=dtype.numpy)
    wide = np.float32 if DType.of(left.dtype).is_float else np.float64
    left = left.astype(wide)
    result = np.empty((left.shape[0], left.shape[1], right.shape[1]), dtype.numpy)
    step = max(1, _BLOCK // (right.shape[0] * right.shape[2]))
    for start in range(0, right.shape[1], step):
        block = right[:, start : start + step].astype(wide)
        result[:, :, start : start + step] = left @ block.swapaxes(1, 2)
    return result


def vector_sides(node: Tensor) -> tuple[bool, bool]:
    """Which operands of a node have a single row in each matrix; neither if it is not a product."""
    origin = node.origin
    if not isinstance(origin, Apply) or origin.op is not dot_general:
        return False, False
    left, right = (
        x.type.size == math.prod(x.shape[axis] for axis in (*batch, *contract))
        for x, batch, contract in zip(
            node.inputs, origin.attrs["batch"], origin.attrs["contract"], strict=True
        )
    )
    return left, right


def fills_tiles(extent: int) -> bool:
    """Whether tiles of any size cover the extent without padding.

    Tiles have 16 elements at most. A power of two below that is one tile, or a whole part of one
    where matrices cannot share a tile.
    """
    return extent % 16 == 0 or extent & (extent - 1) == 0


def _lower(_: Types, __: TensorType, attrs: Attrs) -> Lowering:
    (left_batch, right_batch), (left_sum, right_sum) = attrs["batch"], attrs["contract"]
    return Lowering(
        "stablehlo.dot_general",
        "dot_dimension_numbers = #stablehlo.dot<"
        f"lhs_batching_dimensions = {list(left_batch)}, "
        f"rhs_batching_dimensions = {list(right_batch)}, "
        f"lhs_contracting_dimensions = {list(left_sum)}, "
        f"rhs_contracting_dimensions = {list(right_sum)}>",
    )


def _vjp(
    upstream: Tensor, inputs: tuple[Tensor, ...], _: Tensor, attrs: Attrs
) -> tuple[Tensor | None, ...]:
    """The result's axes are (batch, left's free, right's free); each side's gradient contracts
    the upstream with the other side over that other side's free axes."""
    left, right = inputs
    if not left.dtype.is_float:
        return None, None
    (left_batch, right_batch), (left_sum, right_sum) = attrs["batch"], attrs["contract"]
    left_free = free_axes(left.type.rank, left_batch, left_sum)
    right_free = free_axes(right.type.rank, right_batch, right_sum)
    batches, rows = len(left_batch), len(left_free)
    result_batch = tuple(range(batches))
    result_rows = tuple(range(batches, batches + rows))
    result_columns = tuple(range(batches + rows, batches + rows + len(right_free)))
    dtype = attrs["dtype"]

    def side(
        operand: Tensor,
        layout: tuple[int, ...],
        other: Tensor,
        batch: tuple[int, ...],
        free: tuple[int, ...],
        columns: tuple[int, ...],
    ) -> Tensor:
        """The gradient of `own`, whose axes come out of the product in the order `layout`."""
        product = dot_general(
            upstream,
            convert(other, dtype=dtype) if other.dtype is not dtype else other,
            batch=(result_batch, batch),
            contract=(columns, free),
            dtype=dtype,
        )
        order = tuple(layout.index(axis) for axis in range(operand.type.rank))
        gradient = transpose(product, order=order)
        return convert(gradient, dtype=operand.dtype) if operand.dtype is not dtype else gradient

    # What remains of the other side are its contracted axes, in the order of its own axes.
    left_layout = left_batch + left_free + _paired(right_sum, left_sum)
    right_layout = right_batch + right_free + _paired(left_sum, right_sum)
    return (
        side(left, left_layout, right, right_batch, right_free, result_columns),
        side(right, right_layout, left, left_batch, left_free, result_rows),
    )


def _paired(order: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The own contracted axes in the rising order of the other side's."""
    return tuple(axis for _, axis in sorted(zip(order, axes, strict=True)))


def _samples(rng: np.random.Generator) -> list[Sample]:
    def small(*shape: int) -> Array:
        return rng.integers(-127, 128, size=shape, dtype=np.int8)

    return [
        Sample(
            (normal(rng, 3, 5), normal(rng, 4, 5)),
            {"batch": ((), ()), "contract": ((1,), (1,)), "dtype": DType.F32},
        ),
        Sample(
            (normal(rng, 2, 3, 4, 5), normal(rng, 5, 2, 6, 3)),
            {"batch": ((0, 1), (1, 3)), "contract": ((3,), (0,)), "dtype": DType.F32},
        ),
        Sample(
            (normal(rng, 2, 3, 4), normal(rng, 4, 5, 3)),
            {"batch": ((), ()), "contract": ((2, 1), (0, 2)), "dtype": DType.F32},
        ),
        Sample(
            (small(3, 64), small(5, 64)),
            {"batch": ((), ()), "contract": ((1,), (1,)), "dtype": DType.I32},
        ),
    ]


dot_general: Op = Op(
    name="dot_general",
    doc="Products summed over the axes `contract`, one for each index of the axes `batch`.",
    infer=_infer,
    evaluate=_evaluate,
    lower=_lower,
    vjp=_vjp,
    samples=_samples,
    reads=Reads.LAID_OUT,
    is_stored=True,
)


# --- project: rows times a weight


def _infer_project(types: Types, attrs: Attrs) -> TensorType:
    _accumulated(types, attrs["dtype"])
    x, weight = types
    require(x.dtype.is_float, "floats")
    require(
        x.rank == weight.rank == 2 and x.shape[1] == weight.shape[1],
        "rows (M, K) and a weight (N, K)",
    )
    return TensorType((x.shape[0], weight.shape[0]), attrs["dtype"])


def _as_dot_general(attrs: Attrs) -> Attrs:
    """The attributes of the dot_general that computes the same."""
    return {**attrs, "batch": ((), ()), "contract": ((1,), (1,))}


def _lower_project(types: Types, result: TensorType, _: Attrs) -> Lowering:
    """Not a dot_general, because the compiler drops the hint from StableHLO's ops."""
    narrow, kept = types[0].dtype.mlir, result.dtype.mlir
    pair = f"({kept}, {kept}) -> {kept}"
    left, right, steps = "%x", "%y", []
    if narrow != kept:
        left, right = "%xw", "%yw"
        steps += [
            f'{left} = "arith.extf"(%x) : ({narrow}) -> {kept}',
            f'{right} = "arith.extf"(%y) : ({narrow}) -> {kept}',
        ]
    steps += [
        f'%p = "arith.mulf"({left}, {right}) : {pair}',
        f'%s = "arith.addf"(%o, %p) : {pair}',
        f'"linalg.yield"(%s) : ({kept}) -> ()',
    ]
    maps = ", ".join(f"affine_map<(m, n, k) -> ({axes})>" for axes in ("m, k", "n, k", "m, n"))
    iterators = ", ".join(
        f"#linalg.iterator_type<{iterator}>" for iterator in ("parallel", "parallel", "reduction")
    )
    return Lowering(
        "linalg.generic",
        f"indexing_maps = [{maps}], iterator_types = [{iterators}], "
        "operandSegmentSizes = array<i32: 2, 1>",
        region=f"^bb0(%x: {narrow}, %y: {narrow}, %o: {kept}): {' '.join(steps)}",
        into=0.0,
        hints="iree.opt.data_tiling",
    )


def _samples_project(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((normal(rng, 3, 5), normal(rng, 4, 5)), {"dtype": DType.F32}),
        Sample((normal(rng, 2, 64), normal(rng, 7, 64)), {"dtype": DType.F32}),
    ]


# A weight (N, K) times rows (M, K): what dot_general computes too. A program that uses it has these
# weights laid out for its kernels when it is loaded, and other products read their operands as they
# lie: with a few rows, laying out a KV cache takes longer than reading it. Of a single row the
# compiler drops the hint, together with the axis of extent 1.
project: Op = Op(
    name="project",
    doc="Rows (M, K) times a weight (N, K), which is laid out for its kernel.",
    infer=_infer_project,
    evaluate=lambda arrays, attrs: _evaluate(arrays, _as_dot_general(attrs)),
    lower=_lower_project,
    vjp=lambda g, xs, y, attrs: _vjp(g, xs, y, _as_dot_general(attrs)),
    samples=_samples_project,
    reads=Reads.LAID_OUT,
    is_stored=True,
)


# --- x @ y


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """(..., M, K) times (..., K, N), for each index of the leading axes: (..., M, N).

    Leading axes are aligned at the end. Those that both have are equal; those that one has alone
    stay in front: (B, M, K) times (K, N) is (B, M, N). A vector (K,) on the left is a row, one on
    the right a column, and its axis is left out of the result. Products of f16 and bf16 are summed
    in f32.
    """
    for tensor in (x, y):
        require(isinstance(tensor, Tensor), f"two tensors, got {tensor!r:.60}", "matmul")
        require(tensor.type.rank >= 1, f"at least one axis, got {tensor.type}", "matmul")
    left = x if x.type.rank > 1 else reshape(x, shape=(1, *x.shape))
    right = y if y.type.rank > 1 else reshape(y, shape=(*y.shape, 1))
    product = _matrix_product(left, right)
    *leading, rows, columns = product.shape
    shape = (*leading, *([rows] if left is x else []), *([columns] if right is y else []))
    return product if product.shape == shape else reshape(product, shape=shape)


OPERATORS["x @ y"] = matmul


def _matrix_product(x: Tensor, y: Tensor) -> Tensor:
    """As `matmul`, of tensors of at least two axes."""
    shared = min(x.type.rank, y.type.rank) - 2
    x_alone, y_alone = x.type.rank - 2 - shared, y.type.rank - 2 - shared
    product = dot_general(
        x,
        y,
        batch=(tuple(range(x_alone, x_alone + shared)), tuple(range(y_alone, y_alone + shared))),
        contract=((x.type.rank - 1,), (y.type.rank - 2,)),
        dtype=DType.F32 if x.dtype in NARROW else x.dtype,
    )
    product = product if product.dtype is x.dtype else convert(product, dtype=x.dtype)
    # Its axes: shared, of x alone, M, of y alone, N. Either x or y has none of its own.
    rows = shared + x_alone
    alone = (*range(shared, rows), *range(rows + 1, rows + 1 + y_alone))
    order = (*alone, *range(shared), rows, rows + 1 + y_alone)
    in_order = order == tuple(range(len(order)))
    return product if in_order else transpose(product, order=order)
