"""Ops that fold axes away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl.ops.elementwise import compare, convert, divide, multiply
from hearthd.models.dsl.ops.record import (
    Array,
    Attrs,
    Lowering,
    Op,
    Reads,
    Sample,
    Types,
    Vjp,
    combiner,
    integers,
    operands,
    require,
)
from hearthd.models.dsl.ops.samples import distinct
from hearthd.models.dsl.ops.shape import broadcast
from hearthd.models.dsl.types import NARROW, DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.dsl.graph import Tensor

__all__ = [
    "reduce_max",
    "reduce_sum",
]


def _infer(types: Types, attrs: Attrs) -> TensorType:
    (x,), axes = operands(types, 1), attrs["axes"]
    require(x.dtype.is_float, "a float input")
    require(
        axes == tuple(sorted(set(axes))) and all(0 <= axis < x.rank for axis in axes),
        f"rising axes below {x.rank}",
    )
    kept = (extent for axis, extent in enumerate(x.shape) if axis not in axes)
    return TensorType(tuple(kept), x.dtype)


def _restore(reduced: Tensor, like: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Repeat a reduced tensor along the axes that were folded."""
    kept = tuple(axis for axis in range(like.type.rank) if axis not in axes)
    return broadcast(reduced, shape=like.shape, axes=kept)


def _reduction(
    name: str, doc: str, body: str, initial: float, evaluate: Callable[..., Array], vjp: Vjp
) -> Op:
    """A row of the table of reductions over `axes`, a rising tuple."""

    def samples(rng: np.random.Generator) -> list[Sample]:
        return [
            Sample((distinct(rng, 3, 5),), {"axes": (1,)}),
            Sample((distinct(rng, 2, 3, 4, 5),), {"axes": (0, 2)}),
            Sample((distinct(rng, 7),), {"axes": (0,)}),
        ]

    return Op(
        name=name,
        doc=doc,
        infer=_infer,
        evaluate=lambda arrays, attrs: np.asarray(evaluate(arrays[0], axis=attrs["axes"])),
        lower=lambda _, result, attrs: Lowering(
            "stablehlo.reduce",
            f"dimensions = {integers(attrs['axes'])}",
            region=combiner(body, DType.F32 if result.dtype in NARROW else result.dtype),
            scalars=(initial,),
            in_f32=result.dtype in NARROW,
        ),
        vjp=vjp,
        samples=samples,
        reads=Reads.IN_PLACE,
        is_stored=True,
    )


def _sum(x: Array, axis: tuple[int, ...]) -> Array:
    wide = np.result_type(x.dtype, np.float32)  # narrow floats are summed in f32
    return np.asarray(np.sum(x, axis=axis, dtype=wide)).astype(x.dtype)


def _vjp_max(
    upstream: Tensor, inputs: tuple[Tensor, ...], output: Tensor, attrs: Attrs
) -> tuple[Tensor | None, ...]:
    """The largest elements share the gradient equally."""
    (x,), axes = inputs, attrs["axes"]
    largest = convert(compare(x, _restore(output, x, axes), direction="EQ"), dtype=x.dtype)
    share = divide(upstream, reduce_sum(largest, axes=axes))
    return (multiply(largest, _restore(share, x, axes)),)


reduce_sum: Op = _reduction(
    "reduce_sum",
    "The sum over `axes`, of f16 and bf16 in f32.",
    "stablehlo.add",
    0.0,
    _sum,
    lambda g, xs, y, attrs: (_restore(g, xs[0], attrs["axes"]),),
)
reduce_max: Op = _reduction(
    "reduce_max", "The largest element over `axes`.", "stablehlo.maximum", -np.inf, np.max, _vjp_max
)
