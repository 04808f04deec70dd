"""Ops that move elements and compute nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl.ops.record import (
    Array,
    Attrs,
    Lowering,
    Op,
    Reads,
    Sample,
    Types,
    integers,
    operands,
    require,
)
from hearthd.models.dsl.ops.samples import normal

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.types import TensorType

__all__ = ["broadcast", "concatenate", "pad", "reshape", "reverse", "slice_", "transpose"]


# --- reshape


def _infer_reshape(types: Types, attrs: Attrs) -> TensorType:
    (x,) = operands(types, 1)
    result = x.with_shape(*attrs["shape"])
    require(result.size == x.size, f"a shape of {x.size} elements")
    return result


reshape: Op = Op(
    name="reshape",
    doc="The elements of x in row-major order, in another shape.",
    infer=_infer_reshape,
    evaluate=lambda arrays, attrs: arrays[0].reshape(attrs["shape"]),
    lower=lambda *_: Lowering("stablehlo.reshape"),
    vjp=lambda g, xs, y, _: (reshape(g, shape=xs[0].shape),),
    samples=lambda rng: [
        Sample((normal(rng, 3, 4),), {"shape": (2, 6)}),
        Sample((normal(rng, 2, 3, 5),), {"shape": (5, 1, 3, 2)}),
        Sample((normal(rng, 1),), {"shape": ()}),
    ],
    reads=Reads.IN_PLACE,
    is_stored=False,
)

# --- transpose


def _infer_transpose(types: Types, attrs: Attrs) -> TensorType:
    (x,), order = operands(types, 1), attrs["order"]
    require(sorted(order) == list(range(x.rank)), f"an order of {x.rank} axes")
    return x.with_shape(*(x.shape[axis] for axis in order))


transpose: Op = Op(
    name="transpose",
    doc="x with its axes in another order: axis i of the result is axis `order[i]` of x.",
    infer=_infer_transpose,
    evaluate=lambda arrays, attrs: np.transpose(arrays[0], attrs["order"]),
    lower=lambda _, __, attrs: Lowering(
        "stablehlo.transpose", f"permutation = {integers(attrs['order'])}"
    ),
    vjp=lambda g, xs, y, attrs: (
        transpose(g, order=tuple(int(axis) for axis in np.argsort(attrs["order"]))),
    ),
    samples=lambda rng: [
        Sample((normal(rng, 3, 4),), {"order": (1, 0)}),
        # No involution: an order and its inverse differ.
        Sample((normal(rng, 2, 3, 4, 5),), {"order": (2, 0, 3, 1)}),
    ],
    reads=Reads.IN_PLACE,
    is_stored=False,
)

# --- reverse


def _infer_reverse(types: Types, attrs: Attrs) -> TensorType:
    (x,), axes = operands(types, 1), attrs["axes"]
    require(
        len(set(axes)) == len(axes) and all(0 <= axis < x.rank for axis in axes),
        f"different axes below {x.rank}",
    )
    return x


reverse: Op = Op(
    name="reverse",
    doc="x with its elements in the opposite order along each of `axes`.",
    infer=_infer_reverse,
    evaluate=lambda arrays, attrs: np.flip(arrays[0], attrs["axes"]),
    lower=lambda _, __, attrs: Lowering(
        "stablehlo.reverse", f"dimensions = {integers(attrs['axes'])}"
    ),
    vjp=lambda g, xs, y, attrs: (reverse(g, axes=attrs["axes"]),),
    samples=lambda rng: [
        Sample((normal(rng, 4, 3),), {"axes": (0,)}),
        Sample((normal(rng, 2, 3, 4),), {"axes": (2, 1)}),
    ],
    reads=Reads.IN_PLACE,
    is_stored=False,
)

# --- broadcast


def _infer_broadcast(types: Types, attrs: Attrs) -> TensorType:
    (x,), shape, axes = operands(types, 1), attrs["shape"], attrs["axes"]
    require(
        len(axes) == x.rank
        and axes == tuple(sorted(set(axes)))
        and all(0 <= axis < len(shape) for axis in axes),
        f"{x.rank} rising axes below {len(shape)}",
    )
    require(
        all(extent in (1, shape[axis]) for extent, axis in zip(x.shape, axes, strict=True)),
        f"extents of 1, or equal to the extents of {shape} at the axes {axes}",
    )
    return x.with_shape(*shape)


def _evaluate_broadcast(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    (x,), shape, axes = arrays, attrs["shape"], attrs["axes"]
    extents = dict(zip(axes, x.shape, strict=True))
    aligned = x.reshape([extents.get(axis, 1) for axis in range(len(shape))])
    return np.broadcast_to(aligned, shape)


def _vjp_broadcast(
    upstream: Tensor, inputs: tuple[Tensor, ...], output: Tensor, attrs: Attrs
) -> tuple[Tensor | None, ...]:
    from hearthd.models.dsl.ops.reduction import reduce_sum  # its gradient is this op: a cycle

    (x,), axes = inputs, attrs["axes"]
    extents = dict(zip(axes, x.shape, strict=True))
    repeated = tuple(
        axis for axis, extent in enumerate(output.shape) if extents.get(axis, 0) != extent
    )
    return (reshape(reduce_sum(upstream, axes=repeated), shape=x.shape),)


broadcast: Op = Op(
    name="broadcast",
    doc="x repeated into a larger shape; its axis i becomes the result's axis `axes[i]`.",
    infer=_infer_broadcast,
    evaluate=_evaluate_broadcast,
    lower=lambda _, __, attrs: Lowering(
        "stablehlo.broadcast_in_dim", f"broadcast_dimensions = {integers(attrs['axes'])}"
    ),
    vjp=_vjp_broadcast,
    samples=lambda rng: [
        Sample((normal(rng, 3),), {"shape": (2, 3, 4), "axes": (1,)}),
        Sample((normal(rng, 2, 1),), {"shape": (2, 3, 5), "axes": (0, 1)}),
        Sample((normal(rng),), {"shape": (2, 2), "axes": ()}),
    ],
    reads=Reads.IN_PLACE,
    is_stored=False,
)

# --- slice and pad


def _infer_slice(types: Types, attrs: Attrs) -> TensorType:
    (x,), bounds = operands(types, 1), attrs["bounds"]
    require(
        len(bounds) == x.rank
        and all(
            0 <= start < stop <= extent and step > 0
            for (start, stop, step), extent in zip(bounds, x.shape, strict=False)
        ),
        f"one (start, stop, step) inside each extent of {x.shape}",
    )
    return x.with_shape(*(-(-(stop - start) // step) for start, stop, step in bounds))


def _lower_slice(_: Types, __: TensorType, attrs: Attrs) -> Lowering:
    starts, stops, steps = zip(*attrs["bounds"], strict=True)
    return Lowering(
        "stablehlo.slice",
        f"start_indices = {integers(starts)}, limit_indices = {integers(stops)}, "
        f"strides = {integers(steps)}",
    )


def _vjp_slice(
    upstream: Tensor, inputs: tuple[Tensor, ...], output: Tensor, attrs: Attrs
) -> tuple[Tensor | None, ...]:
    bounds = attrs["bounds"]
    padding = tuple(
        (start, extent - start - ((kept - 1) * step + 1), step - 1)
        for (start, _, step), extent, kept in zip(
            bounds, inputs[0].shape, output.shape, strict=True
        )
    )
    return (pad(upstream, padding=padding),)


slice_: Op = Op(
    name="slice",
    doc="Along each axis every `step`-th element from `start` up to `stop`, which is left out.",
    infer=_infer_slice,
    evaluate=lambda arrays, attrs: arrays[0][tuple(slice(*bound) for bound in attrs["bounds"])],
    lower=_lower_slice,
    vjp=_vjp_slice,
    samples=lambda rng: [
        Sample((normal(rng, 5, 6),), {"bounds": ((1, 4, 1), (0, 6, 1))}),
        Sample((normal(rng, 2, 9, 3),), {"bounds": ((0, 2, 1), (1, 8, 3), (2, 3, 1))}),
    ],
    reads=Reads.IN_PLACE,
    is_stored=False,
)


def _infer_pad(types: Types, attrs: Attrs) -> TensorType:
    (x,), padding = operands(types, 1), attrs["padding"]
    require(
        len(padding) == x.rank and all(count >= 0 for axis in padding for count in axis),
        f"{x.rank} times (low, high, between), none negative",
    )
    return x.with_shape(*_padded(x.shape, padding))


def _padded(shape: tuple[int, ...], padding: tuple[tuple[int, int, int], ...]) -> tuple[int, ...]:
    return tuple(
        low + extent + between * (extent - 1) + high
        for extent, (low, high, between) in zip(shape, padding, strict=True)
    )


def _pad_bounds(shape: tuple[int, ...], padding: tuple[tuple[int, int, int], ...]) -> Attrs:
    """The slice that takes the padding off again."""
    return {
        "bounds": tuple(
            (low, low + (extent - 1) * (between + 1) + 1, between + 1)
            for extent, (low, _, between) in zip(shape, padding, strict=True)
        )
    }


def _evaluate_pad(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    (x,), padding = arrays, attrs["padding"]
    result = np.full(_padded(x.shape, padding), attrs.get("value", 0.0), x.dtype)
    inside = _pad_bounds(x.shape, padding)["bounds"]
    result[tuple(slice(*bound) for bound in inside)] = x
    return result


def _lower_pad(_: Types, __: TensorType, attrs: Attrs) -> Lowering:
    low, high, between = zip(*attrs["padding"], strict=True)
    return Lowering(
        "stablehlo.pad",
        f"edge_padding_low = {integers(low)}, edge_padding_high = {integers(high)}, "
        f"interior_padding = {integers(between)}",
        scalars=(attrs.get("value", 0.0),),
    )


pad: Op = Op(
    name="pad",
    doc="x with zeros, or `value`, before, after and between its elements along each axis.",
    infer=_infer_pad,
    evaluate=_evaluate_pad,
    lower=_lower_pad,
    vjp=lambda g, xs, y, attrs: (slice_(g, **_pad_bounds(xs[0].shape, attrs["padding"])),),
    samples=lambda rng: [
        Sample((normal(rng, 3, 4),), {"padding": ((1, 2, 0), (0, 1, 0))}),
        Sample((normal(rng, 2, 3, 2),), {"padding": ((0, 0, 0), (1, 0, 2), (0, 3, 1))}),
        Sample((normal(rng, 3),), {"padding": ((2, 1, 0),), "value": -1.5}),
    ],
    reads=Reads.IN_PLACE,
    is_stored=False,
)

# --- concatenate


def _infer_concatenate(types: Types, attrs: Attrs) -> TensorType:
    require(bool(types), "an input")
    first, axis = types[0], attrs["axis"]
    require(0 <= axis < first.rank, f"an axis below {first.rank}")

    def others(x: TensorType) -> tuple[object, ...]:
        return (x.dtype, x.rank, x.shape[:axis], x.shape[axis + 1 :])

    require(
        all(others(x) == others(first) for x in types),
        f"inputs that differ along axis {axis} only",
    )
    total = sum(x.shape[axis] for x in types)
    return first.with_shape(*first.shape[:axis], total, *first.shape[axis + 1 :])


def _vjp_concatenate(
    upstream: Tensor, inputs: tuple[Tensor, ...], output: Tensor, attrs: Attrs
) -> tuple[Tensor | None, ...]:
    axis, start, parts = attrs["axis"], 0, []
    for x in inputs:
        bounds = [(0, extent, 1) for extent in output.shape]
        bounds[axis] = (start, start + x.shape[axis], 1)
        parts.append(slice_(upstream, bounds=tuple(bounds)))
        start += x.shape[axis]
    return tuple(parts)


concatenate: Op = Op(
    name="concatenate",
    doc="The inputs one after the other along `axis`.",
    infer=_infer_concatenate,
    evaluate=lambda arrays, attrs: np.concatenate(arrays, axis=attrs["axis"]),
    lower=lambda _, __, attrs: Lowering(
        "stablehlo.concatenate", f"dimension = {attrs['axis']} : i64"
    ),
    vjp=_vjp_concatenate,
    samples=lambda rng: [
        Sample((normal(rng, 2, 3), normal(rng, 2, 4)), {"axis": 1}),
        Sample((normal(rng, 1, 3, 2), normal(rng, 4, 3, 2), normal(rng, 2, 3, 2)), {"axis": 0}),
    ],
    reads=Reads.IN_PLACE,
    is_stored=True,
)
