"""Attention over a KV cache: the kernel reads the keys that a token sees, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.dsl import functions as f
from models.dsl.composite import Fused
from models.dsl.ops.record import Kernel, Sample, require
from models.dsl.ops.samples import normal
from models.dsl.types import DType

if TYPE_CHECKING:
    from models.dsl.ops.record import Attrs, Types
    from models.dsl.types import TensorType

__all__ = ["attention_cached"]

# As the kernel has them: queries of a workgroup, and widths of a head.
_QUERIES = 4
_WIDTH_STEP, _MAX_WIDTH = 64, 256


def _limits(types: Types, attrs: Attrs) -> None:
    query, key, value, _ = types
    require(query.dtype in (DType.F32, DType.F64), "floats")
    require(query.rank == 3 and key.rank == 2, "a query (T, H, D) and a cache (R, G * D)")
    require(
        key == value and key.dtype in (query.dtype, DType.F16),
        "keys and values of one type: the query's dtype or f16",
    )
    width, columns = query.shape[2], key.shape[1]
    require(
        width % _WIDTH_STEP == 0
        and width <= _MAX_WIDTH
        and columns % width == 0
        and query.shape[1] % (columns // width) == 0,
        f"heads of a multiple of {_WIDTH_STEP} and at most {_MAX_WIDTH}, H a multiple of G",
    )
    require(attrs.get("cap") is None, "no soft cap of scores")
    window = attrs.get("window")
    require(window is None or window >= 1, f"a window of at least 1 key, got {window}")


def _kernel(types: Types, _: TensorType, attrs: Attrs) -> Kernel:
    (tokens, heads, width), (rows, columns) = types[0].shape, types[1].shape
    groups = columns // width
    together = _heads_together(heads // groups, alone=tokens * groups == 1)
    # All positions are below `keys`: a window of as many keys sees all of them.
    window = attrs["keys"] if attrs.get("window") is None else attrs["window"]
    return Kernel(
        function="attention_cached_f16" if types[1].dtype is DType.F16 else "attention_cached",
        sizes=(tokens, heads, groups, width, rows, window, together),
        workgroups=heads // together * -(-tokens * together // _QUERIES),
        scalars=(attrs["scale"],),
    )


def _heads_together(shared: int, *, alone: bool) -> int:
    """Heads of one workgroup, which read keys together, of the `shared` heads of a group.

    The heads of a single token and a single group are split: else one thread would have them all.
    """
    limit = min(_QUERIES, shared // 2 if alone and shared > 1 else shared)
    return max(heads for heads in range(1, limit + 1) if shared % heads == 0)


def _sample(rng: np.random.Generator, tokens: int, start: int, window: int | None) -> Sample:
    cache = (normal(rng, 7, 64), normal(rng, 7, 64))
    inputs = (normal(rng, tokens, 2, 64), *cache, np.array([start], np.int32))
    limits = {"keys": 7} if window is None else {"keys": 30, "window": window}
    return Sample(inputs, {**limits, "scale": 0.2})


attention_cached: Fused = Fused(
    name="attention_cached",
    doc="`f.cached_attention`: softmax(scale * q k^T) v over the KV cache of one sequence.",
    reference=f.cached_attention.op.reference,
    limits=_limits,
    kernel=_kernel,
    samples=lambda rng: [
        _sample(rng, 1, 4, None),
        _sample(rng, 2, 20, 3),
        _sample(rng, 7, 0, None),
    ],
)
