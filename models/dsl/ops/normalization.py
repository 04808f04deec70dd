"""Norms together with what stands beside them in a decoder's layer, by kernels of our own.

Out of primitives they are functions: functions/normalization.py and functions/attention.py. The
compiler makes several dispatches of each, and after every one the workers wait for each other,
which takes longer than the arithmetic of a token. The kernels are in models/dsl/kernels/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.dsl.ops.record import (
    Array,
    Attrs,
    Kernel,
    NoGradient,
    Op,
    Reads,
    Sample,
    operands,
    require,
)
from models.dsl.ops.samples import normal, positive
from models.dsl.types import DType

if TYPE_CHECKING:
    from models.dsl.ops.record import Types
    from models.dsl.types import TensorType

__all__ = ["residual_norm", "rotated_norm"]

# As the kernels have it.
_LANES = 16

_NO_GRADIENT = NoGradient("it is for reading tokens: train with the functions that it stands for")


def _normalised(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis."""
    root = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(eps))
    return np.asarray(x / root * weight)


def _rows(x: TensorType, rank: int, multiple: int) -> None:
    """Refuses what the kernels do not take as their first input."""
    require(
        x.dtype in (DType.F32, DType.F64) and x.rank == rank and x.shape[-1] % multiple == 0,
        f"floats of rank {rank}, the last axis a multiple of {multiple}",
    )


# --- residual_norm


def _infer_residual(types: Types, _: Attrs) -> TensorType:
    h, y, after, before = operands(types, 4)
    _rows(h, 2, _LANES)
    require(h == y, "two tensors (N, E) of one type")
    require(after == before == h.with_shape(h.shape[1]), "two weights (E,) of their dtype")
    return h.with_shape(2, *h.shape)


def _evaluate_residual(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    h, y, after, before = arrays
    total = h + _normalised(y, after, attrs["eps"])
    return np.stack([total, _normalised(total, before, attrs["eps"])])


def _residual_sample(rng: np.random.Generator, rows: int, width: int) -> Sample:
    streams = (normal(rng, rows, width), normal(rng, rows, width))
    return Sample((*streams, positive(rng, width), positive(rng, width)), {"eps": 1e-3})


residual_norm: Op = Op(
    name="residual_norm",
    doc=(
        "Of h and y (N, E) and weights (E,): h + rms_norm(y, after), and the rms_norm of that with"
        " the weight `before`; one behind the other, (2, N, E)."
    ),
    infer=_infer_residual,
    evaluate=_evaluate_residual,
    lower=lambda types, _, attrs: Kernel(
        function="residual_norm",
        sizes=types[0].shape,
        scalars=(attrs["eps"],),
        workgroups=types[0].shape[0],
    ),
    vjp=_NO_GRADIENT,
    samples=lambda rng: [_residual_sample(rng, 1, 32), _residual_sample(rng, 3, 48)],
    reads=Reads.IN_PLACE,
    is_stored=True,
)


# --- rotated_norm


def _infer_rotated(types: Types, attrs: Attrs) -> TensorType:
    x, weight, cosine, sine = operands(types, 4)
    _rows(x, 3, 2 * _LANES)
    rows, every, width = x.shape
    start, stop = attrs["heads"]
    require(0 <= start < stop <= every, f"some of {every} heads, got {start} to {stop}")
    require(weight == x.with_shape(width), "a weight (D,) of the heads' dtype")
    require(cosine == sine == x.with_shape(rows, width // 2), "a cosine and a sine (N, D / 2)")
    return x.with_shape(rows, stop - start, width)


def _evaluate_rotated(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    x, weight, *table = arrays
    own = x[:, slice(*attrs["heads"])]
    first, second = np.split(_normalised(own, weight, attrs["eps"]), 2, axis=2)
    cosine, sine = (angles[:, np.newaxis] for angles in table)
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=2)


def _lower_rotated(types: Types, _: TensorType, attrs: Attrs) -> Kernel:
    rows, every, width = types[0].shape
    return Kernel(
        function="rotated_norm",
        sizes=(every, *attrs["heads"], width),
        scalars=(attrs["eps"],),
        workgroups=rows,
    )


def _rotated_sample(
    rng: np.random.Generator, rows: int, every: int, heads: tuple[int, int]
) -> Sample:
    angles = rng.uniform(0, 7, size=(rows, 16)).astype(np.float32)
    inputs = (normal(rng, rows, every, 32), positive(rng, 32), np.cos(angles), np.sin(angles))
    return Sample(inputs, {"heads": heads, "eps": 1e-3})


rotated_norm: Op = Op(
    name="rotated_norm",
    doc=(
        "rope(rms_norm(x, weight)) of some heads, from the first of `heads` up to the second, of x"
        " (N, H, D), with a weight (D,) and a table of cosines and sines (N, D / 2)."
    ),
    infer=_infer_rotated,
    evaluate=_evaluate_rotated,
    lower=_lower_rotated,
    vjp=_NO_GRADIENT,
    samples=lambda rng: [_rotated_sample(rng, 1, 1, (0, 1)), _rotated_sample(rng, 3, 4, (1, 3))],
    reads=Reads.IN_PLACE,
    is_stored=True,
)
