"""The middle of feed-forward layers: an activation, often times other values (Shazeer, 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Attrs, Types

__all__ = ["clamped_swiglu", "gated_gelu_tanh", "gated_silu", "squared_relu"]

_LANES = 16  # as the kernel has them
_MIN_SHARE = 256  # values of a workgroup
_MAX_WORKGROUPS = 8


def _limits(types: Types, _: Attrs) -> None:
    first = types[0]
    require(
        {*types} == {first} and first.dtype in (DType.F32, DType.F64) and first.size % _LANES == 0,
        f"tensors of floats of one type, the size a multiple of {_LANES}",
    )


def _kernel(function: str, types: Types, *scalars: float) -> Kernel:
    size = types[0].size
    each = max(_MIN_SHARE, -(-size // _MAX_WORKGROUPS))
    share = -(-each // _LANES) * _LANES
    return Kernel(
        function=function, sizes=(share, size), workgroups=-(-size // share), scalars=scalars
    )


def _samples(rng: np.random.Generator, tensors: int = 2, **attrs: float) -> list[Sample]:
    return [
        Sample(tuple(normal(rng, *shape) for _ in range(tensors)), attrs)
        for shape in ((1, 32), (3, 272))
    ]


def _gated(activation: Callable[[Tensor], Tensor]) -> Fused:
    name = activation.__name__
    return Fused(
        name=f"gated_{name}",
        doc=f"`f.{name}` of the first tensor, times the second one.",
        reference=lambda gate, up: activation(gate) * up,
        limits=_limits,
        elementwise=True,
        kernel=lambda types, _, __: _kernel(f"gated_{name}", types),
        samples=_samples,
    )


gated_silu: Fused = _gated(f.silu)
gated_gelu_tanh: Fused = _gated(f.gelu_tanh)
clamped_swiglu: Fused = Fused(
    name="clamped_swiglu",
    doc="`f.clamped_swiglu`: a bounded gate, its sigmoid, and bounded values plus one, multiplied.",
    reference=f.clamped_swiglu.op.reference,
    limits=_limits,
    elementwise=True,
    kernel=lambda types, _, attrs: _kernel("clamped_swiglu", types, attrs["limit"], attrs["slope"]),
    samples=lambda rng: _samples(rng, limit=0.7, slope=1.7),
)
squared_relu: Fused = Fused(
    name="squared_relu",
    doc="`f.squared_relu`: the square of what is above 0.",
    reference=f.squared_relu.op.reference,
    limits=_limits,
    elementwise=True,
    kernel=lambda types, _, __: _kernel("squared_relu", types),
    samples=lambda rng: _samples(rng, 1),
)
