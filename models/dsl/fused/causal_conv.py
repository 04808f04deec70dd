"""A short convolution, and the ring of its latest inputs, written in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.ops.record import Attrs, Types

__all__ = ["causal_conv", "latest_inputs"]

# As the kernel has them: channels that are computed together, and the most taps.
_LANES, _MAX_TAPS = 16, 8
_SHARE = 128  # channels of a workgroup of the convolution
_WRITERS = 4  # workgroups that share a row of the ring


def _conv_limits(types: Types, _: Attrs) -> None:
    before, x, weight, *bias = types
    channels, taps = weight.shape
    require(x.dtype in (DType.F32, DType.F64), "floats")
    require(
        x.shape[1] == channels and before.shape == (1, (taps - 1) * channels),
        "inputs (T, C), those before them (1, (W - 1) * C) and taps (C, W)",
    )
    require([*bias] in ([], [TensorType((channels,), x.dtype)]), "a bias (C,)")
    require(channels % _LANES == 0, f"channels of a multiple of {_LANES}")
    require(2 <= taps <= _MAX_TAPS, f"2 to {_MAX_TAPS} taps")


def _conv_kernel(types: Types) -> Kernel:
    (tokens, channels), taps = types[1].shape, types[2].shape[1]
    return Kernel(
        function="causal_conv" + "_bias" * (len(types) > 3),
        sizes=(tokens, channels, taps, _SHARE),
        workgroups=-(-channels // _SHARE),
    )


def _conv_sample(rng: np.random.Generator, *shape: int, bias: bool = False) -> Sample:
    tokens, channels, taps = shape
    inputs = (normal(rng, 1, (taps - 1) * channels), normal(rng, tokens, channels))
    more = (normal(rng, channels),) if bias else ()
    return Sample((*inputs, normal(rng, channels, taps), *more), {})


causal_conv: Fused = Fused(
    name="causal_conv",
    doc="`f.causal_conv`: SiLU of a short convolution of each channel over its latest inputs.",
    reference=f.causal_conv.op.reference,
    limits=_conv_limits,
    kernel=lambda types, _, __: _conv_kernel(types),
    samples=lambda rng: [_conv_sample(rng, 3, 16, 4), _conv_sample(rng, 2, 48, 2, bias=True)],
)


def _latest_limits(types: Types, attrs: Attrs) -> None:
    states, positions, before, x = types
    require(x.dtype in (DType.F32, DType.F64), "floats")
    require(positions == TensorType((2,), DType.I32), "positions i32 (2,)")
    require(
        before.shape == (1, states.shape[1]) and states.shape[1] % x.shape[1] == 0,
        "a ring (R, (W - 1) * C), a row of it and inputs (T, C)",
    )
    require(x.shape[1] % _LANES == 0, f"channels of a multiple of {_LANES}")
    least = x.shape[0] if attrs["every"] else 1
    require(states.shape[0] >= least, f"a ring of at least {least} rows")


def _latest_kernel(types: Types, attrs: Attrs) -> Kernel:
    (ring, width), (tokens, channels) = types[0].shape, types[3].shape
    return Kernel(
        function="latest_inputs",
        sizes=(tokens, channels, width // channels, ring, int(attrs["every"]), _WRITERS),
        workgroups=_WRITERS,
        in_place=True,
    )


def _latest_sample(rng: np.random.Generator, first: int, *shape: int, every: bool) -> Sample:
    ring, tokens, channels, earlier = shape
    states, before = normal(rng, ring, earlier * channels), normal(rng, 1, earlier * channels)
    positions = np.array([first, first + tokens - 1], np.int32)
    return Sample((states, positions, before, normal(rng, tokens, channels)), {"every": every})


latest_inputs: Fused = Fused(
    name="latest_inputs",
    doc="`f.latest_inputs`: a ring of the latest inputs of a convolution, with those after new "
    "tokens.",
    reference=f.latest_inputs.op.reference,
    limits=_latest_limits,
    kernel=lambda types, _, attrs: _latest_kernel(types, attrs),
    samples=lambda rng: [
        _latest_sample(rng, 4, 3, 5, 80, 2, every=False),
        _latest_sample(rng, 1, 4, 2, 16, 3, every=True),
    ],
)
