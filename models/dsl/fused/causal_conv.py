"""A short convolution, and the ring of its latest inputs, read and written in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

    Range = tuple[int, int]

__all__ = ["causal_conv", "latest_inputs", "row_before"]

# As the kernel has them: channels that are computed together, and the most taps.
_LANES, _MAX_TAPS = 16, 8
_SHARE = 128  # channels of a workgroup of the convolution
_WRITERS = 4  # workgroups that share a row of the ring


def _chosen(x: Tensor, rows: Range, columns: Range) -> Tensor:
    return f.narrow(f.narrow(x, 0, *rows), 1, *columns)


def _extents(attrs: Attrs) -> tuple[int, int]:
    """How many rows and columns of the inputs are chosen: T and C."""
    (first, end), (start, stop) = attrs["rows"], attrs["columns"]
    return end - first, stop - start


def _place(x: TensorType, attrs: Attrs) -> tuple[int, int]:
    """The element of the inputs where those that are chosen begin, and the values of a row."""
    return attrs["rows"][0] * x.shape[1] + attrs["columns"][0], x.shape[1]


def _padded(rng: np.random.Generator, tokens: int, channels: int, padding: int) -> Array:
    """Inputs (T, C) with `padding` more rows and columns on each side."""
    return normal(rng, tokens + 2 * padding, channels + 2 * padding)


def _inside(tokens: int, channels: int, padding: int) -> dict[str, Range]:
    return {"rows": (padding, padding + tokens), "columns": (padding, padding + channels)}


# --- the row that is continued


def _row_limits(types: Types, attrs: Attrs) -> None:
    states, position = types
    require(states.dtype in (DType.F32, DType.F64), "floats")
    require(position == TensorType((1,), DType.I32), "a position i32 (1,)")
    require(attrs["ring"] <= states.shape[0], "a ring of at most the rows")
    require(states.shape[1] % _LANES == 0, f"rows of a multiple of {_LANES}")


def _row_kernel(types: Types, attrs: Attrs) -> Kernel:
    width = types[0].shape[1]
    share = -(-width // _WRITERS // _LANES) * _LANES
    return Kernel(
        function="row_before",
        sizes=(width, attrs["ring"], share),
        workgroups=-(-width // share),
    )


def _row_sample(rng: np.random.Generator, position: int, *shape: int, ring: int) -> Sample:
    return Sample((normal(rng, *shape), np.array([position], np.int32)), {"ring": ring})


row_before: Fused = Fused(
    name="row_before",
    doc="`f.row_before`: the row of a ring of states that a position continues.",
    reference=f.row_before.op.reference,
    limits=_row_limits,
    kernel=lambda types, _, attrs: _row_kernel(types, attrs),
    samples=lambda rng: [
        _row_sample(rng, 7, 5, 80, ring=4),
        _row_sample(rng, 0, 3, 32, ring=3),
    ],
)

# --- the convolution


def _causal_conv(
    before: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    rows: Range,
    columns: Range,
) -> Tensor:
    return f.causal_conv.op.reference(before, _chosen(x, rows, columns), weight, bias)


def _conv_limits(types: Types, attrs: Attrs) -> None:
    before, x, weight, *bias = types
    channels, taps = weight.shape
    require(x.dtype in (DType.F32, DType.F64), "floats")
    require(
        _extents(attrs)[1] == channels and before.shape == (1, (taps - 1) * channels),
        "inputs (T, C), those before them (1, (W - 1) * C) and taps (C, W)",
    )
    require([*bias] in ([], [TensorType((channels,), x.dtype)]), "a bias (C,)")
    require(channels % _LANES == 0, f"channels of a multiple of {_LANES}")
    require(2 <= taps <= _MAX_TAPS, f"2 to {_MAX_TAPS} taps")


def _conv_kernel(types: Types, attrs: Attrs) -> Kernel:
    (tokens, channels), taps = _extents(attrs), types[2].shape[1]
    return Kernel(
        function="causal_conv" + "_bias" * (len(types) > 3),
        sizes=(tokens, channels, taps, _SHARE, *_place(types[1], attrs)),
        workgroups=-(-channels // _SHARE),
    )


def _conv_sample(rng: np.random.Generator, *shape: int, bias: bool = False) -> Sample:
    tokens, channels, taps, padding = shape
    before, x = normal(rng, 1, (taps - 1) * channels), _padded(rng, tokens, channels, padding)
    more = (normal(rng, channels),) if bias else ()
    weight = normal(rng, channels, taps)
    return Sample((before, x, weight, *more), _inside(tokens, channels, padding))


causal_conv: Fused = Fused(
    name="causal_conv",
    doc="`f.causal_conv`: SiLU of a short convolution of each channel over its latest inputs, some "
    "rows and columns of a tensor.",
    reference=_causal_conv,
    limits=_conv_limits,
    kernel=lambda types, _, attrs: _conv_kernel(types, attrs),
    samples=lambda rng: [_conv_sample(rng, 2, 48, 2, 1, bias=True), _conv_sample(rng, 3, 16, 4, 0)],
)

# --- the latest inputs


def _latest_inputs(
    states: Tensor,
    positions: Tensor,
    before: Tensor,
    x: Tensor,
    *,
    every: bool,
    rows: Range,
    columns: Range,
) -> Tensor:
    x = _chosen(x, rows, columns)
    return f.latest_inputs.op.reference(states, positions, before, x, every=every)


def _latest_limits(types: Types, attrs: Attrs) -> None:
    states, positions, before, x = types
    tokens, channels = _extents(attrs)
    require(x.dtype in (DType.F32, DType.F64), "floats")
    require(positions == TensorType((2,), DType.I32), "positions i32 (2,)")
    require(
        before.shape == (1, states.shape[1]) and states.shape[1] % channels == 0,
        "a ring (R, (W - 1) * C), a row of it and inputs (T, C)",
    )
    require(channels % _LANES == 0, f"channels of a multiple of {_LANES}")
    least = tokens if attrs["every"] else 1
    require(states.shape[0] >= least, f"a ring of at least {least} rows")


def _latest_kernel(types: Types, attrs: Attrs) -> Kernel:
    (ring, width), (tokens, channels) = types[0].shape, _extents(attrs)
    sizes = (tokens, channels, width // channels, ring, int(attrs["every"]), _WRITERS)
    return Kernel(
        function="latest_inputs",
        sizes=(*sizes, *_place(types[3], attrs)),
        workgroups=_WRITERS,
        in_place=True,
    )


def _latest_sample(rng: np.random.Generator, first: int, *shape: int, every: bool) -> Sample:
    ring, tokens, channels, earlier, padding = shape
    states, before = normal(rng, ring, earlier * channels), normal(rng, 1, earlier * channels)
    positions = np.array([first, first + tokens - 1], np.int32)
    x = _padded(rng, tokens, channels, padding)
    inside = _inside(tokens, channels, padding)
    return Sample((states, positions, before, x), {"every": every, **inside})


latest_inputs: Fused = Fused(
    name="latest_inputs",
    doc="`f.latest_inputs`: a ring of the latest inputs of a convolution, with those after new "
    "tokens, some rows and columns of a tensor.",
    reference=_latest_inputs,
    limits=_latest_limits,
    kernel=lambda types, _, attrs: _latest_kernel(types, attrs),
    samples=lambda rng: [
        _latest_sample(rng, 4, 3, 5, 80, 2, 1, every=False),
        _latest_sample(rng, 1, 4, 2, 16, 3, 0, every=True),
    ],
)
