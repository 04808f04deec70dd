"""Attention over a KV cache, by a kernel of our own (models/dsl/kernels/attention_cached.c).

Out of primitives it is a function: functions/attention.py. That one computes on every row of a
cache and masks what a token does not see; the kernel reads what it sees.
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
from models.dsl.ops.samples import normal
from models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from models.dsl.ops.record import Types

__all__ = ["attention_cached"]

# As the kernel has them: queries of a workgroup, and widths of a head.
_QUERIES = 4
_WIDTH_STEP, _MOST_WIDTH = 64, 256


def _infer(types: Types, attrs: Attrs) -> TensorType:
    query, key, value, start = operands(types, 4)
    floats = query.dtype in (DType.F32, DType.F64)
    require(floats and query.rank == 3 and key.rank == 2, "a query (T, H, D), a cache (R, G * D)")
    width, columns = query.shape[2], key.shape[1]
    require(key == value and key.dtype is query.dtype, "keys and values of one type, the query's")
    require(start == TensorType((1,), DType.I32), "a start i32 (1,)")
    require(
        width % _WIDTH_STEP == 0
        and width <= _MOST_WIDTH
        and columns % width == 0
        and query.shape[1] % (columns // width) == 0,
        f"heads of a multiple of {_WIDTH_STEP} and {_MOST_WIDTH} at most, H a multiple of G",
    )
    require(attrs["window"] >= 1, f"a window of at least 1 key, got {attrs['window']}")
    return query


def _evaluate(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    query, key, value, start = arrays
    width = query.shape[2]
    shared = query.shape[1] // (key.shape[1] // width)
    keys, values = (
        np.repeat(cache.reshape(len(cache), -1, width), shared, axis=1) for cache in (key, value)
    )
    window = attrs["window"]
    result = np.empty_like(query)
    for i, own in enumerate(query):
        position = int(start[0]) + i
        rows = np.arange(max(0, position - window + 1), position + 1) % len(key)
        scores = attrs["scale"] * np.einsum("hd,rhd->hr", own, keys[rows])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        mixed = np.einsum("hr,rhd->hd", weights, values[rows])
        result[i] = mixed / weights.sum(axis=1, keepdims=True)
    return result


def _lower(types: Types, _: TensorType, attrs: Attrs) -> Kernel:
    (tokens, heads, width), (rows, columns) = types[0].shape, types[1].shape
    groups = columns // width
    together = _together(heads // groups, alone=tokens * groups == 1)
    return Kernel(
        function="attention_cached",
        sizes=(tokens, heads, groups, width, rows, attrs["window"], together),
        workgroups=heads // together * -(-tokens * together // _QUERIES),
        scalars=(attrs["scale"],),
    )


def _together(shared: int, *, alone: bool) -> int:
    """Heads of a workgroup, which read keys together, of so many that share them.

    A single token's heads of a single group are shared out: else one thread would have all.
    """
    most = min(_QUERIES, shared // 2 if alone and shared > 1 else shared)
    return max(heads for heads in range(1, most + 1) if shared % heads == 0)


def _sample(rng: np.random.Generator, tokens: int, start: int, window: int) -> Sample:
    cache = (normal(rng, 7, 64), normal(rng, 7, 64))
    inputs = (normal(rng, tokens, 2, 64), *cache, np.array([start], np.int32))
    return Sample(inputs, {"window": window, "scale": 0.2})


attention_cached: Op = Op(
    name="attention_cached",
    doc=(
        "softmax(scale * q k^T) v of tokens (T, H, D) at positions start, start + 1, ... over the"
        " keys that they see in a ring cache (R, G * D): position p in row p mod R, the tokens' own"
        " included."
    ),
    infer=_infer,
    evaluate=_evaluate,
    lower=_lower,
    vjp=NoGradient("its cache is written in place: train without one"),
    samples=lambda rng: [
        _sample(rng, 1, 4, 7),
        _sample(rng, 2, 20, 3),
        _sample(rng, 7, 0, 7),
    ],
    reads=Reads.IN_PLACE,
    is_stored=True,
)
