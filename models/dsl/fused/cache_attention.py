"""Attention over a KV cache: the kernel reads the keys that a token sees, and no others.

Kernels also write the new rows of a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Kernel, Sample, Scratch, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

__all__ = [
    "cached_attention",
    "int8_cache_attention",
    "write_f16_rows",
    "write_int8_rows",
    "write_row_scales",
]

# As the kernels have them: queries that share keys, keys of a block, and widths of a head. Few
# queries are spread over steps of a width; many read all of it, 16 values at a time.
_QUERIES, _KEYS = 4, 64
_WIDTH_STEP, _MAX_WIDTH = 64, 512
# Queries of a workgroup of a prefill, the fastest first. A workgroup of more transposes keys and
# converts values for more; of fewer than 16, transposing takes longer than it saves.
_PREFILL_QUERIES = (64, 32, 16)
PREFILL_TOKENS = 16
# Workgroups that leave enough for each of up to eight threads.
WORKGROUPS = 8
# The values of a head that a kernel computes at a time.
LANES = 16


def _limits(types: Types, attrs: Attrs) -> None:
    query, key, value, start, *sinks = types
    limit_caches(query, key, value)
    limit_shapes(query, key, start, sinks, attrs)


def limit_caches(query: TensorType, key: TensorType, value: TensorType) -> None:
    require(
        key == value and key.dtype in (query.dtype, DType.F16),
        "keys and values of one type: the query's dtype or f16",
    )


def _limits_i8(types: Types, attrs: Attrs) -> None:
    query, key, value, key_scale, value_scale, start, *sinks = types
    require(key == value and key.dtype is DType.I8, "keys and values i8")
    limit_shapes(query, key, start, sinks, attrs)
    scales = TensorType((key.shape[0], key.shape[1] // query.shape[2]), query.dtype)
    require(key_scale == value_scale == scales, f"scales {scales}")


def limit_shapes(
    query: TensorType,
    key: TensorType,
    start: TensorType,
    sinks: Sequence[TensorType],
    attrs: Attrs,
) -> None:
    """Raises TypeRuleError for a query and a cache (R, G * D) that the kernels cannot take."""
    groups = limit_heads(query, key, LANES)
    tokens, heads, width = query.shape
    is_prefill = _prefill_queries(tokens, heads, groups) is not None
    require(is_prefill or width % _WIDTH_STEP == 0, f"heads of a multiple of {_WIDTH_STEP}")
    require(attrs.get("cap") is None, "no soft cap of scores")
    per_head = TensorType(query.shape[1:2], query.dtype)
    require([*sinks] in ([], [per_head]), f"sinks {per_head}")
    require(start.dtype is DType.I32 and start.shape in ((1,), (2,)), "positions i32 (1,) or (2,)")
    require(start.shape == (1,) or is_prefill, "tokens that see later ones, in a prefill only")
    window = attrs.get("window")
    require(window is None or window >= 1, f"a window of at least 1 key, got {window}")


def limit_heads(query: TensorType, key: TensorType, step: int) -> int:
    """The groups G of a query (T, H, D) and keys (R, G * D); D is a multiple of a step."""
    require(query.dtype in (DType.F32, DType.F64), "floats")
    require(query.rank == 3 and key.rank == 2, "a query (T, H, D) and a cache (R, G * D)")
    (_, heads, width), columns = query.shape, key.shape[1]
    require(
        columns % width == 0 and heads % (columns // width) == 0,
        "heads of one width, H a multiple of G",
    )
    require(
        width % step == 0 and width <= _MAX_WIDTH,
        f"heads of a multiple of {step} and at most {_MAX_WIDTH}",
    )
    return columns // width


def _kernel(types: Types, _: TensorType, attrs: Attrs) -> Kernel:
    query, key = types[:2]
    suffix = "" if key.dtype is query.dtype else f"_{key.dtype.label}"
    start = 5 if key.dtype is DType.I8 else 3
    has_sinks = len(types) > start + 1
    return attention_kernel(query, key, types[start], attrs, suffix + "_sinks" * has_sinks)


def attention_kernel(
    query: TensorType, key: TensorType, start: TensorType, attrs: Attrs, suffix: str
) -> Kernel:
    """The kernel of attention, of a variant, for a query (T, H, D) and a cache (R, G * D)."""
    (tokens, heads, width), (rows, columns) = query.shape, key.shape
    groups = columns // width
    # All positions are below `keys`: a window of as many keys sees all of them.
    window = attrs["keys"] if attrs.get("window") is None else attrs["window"]
    sizes = (tokens, heads, groups, width, rows, window)
    together = _heads_together(heads // groups)
    parts = heads // together
    queries = _prefill_queries(tokens, heads, groups)
    if queries is None:
        stored = min(rows, window + tokens - 1) + _KEYS - 1  # from the first key of a block on
        return _spread(sizes, min(attrs["keys"], stored), attrs["scale"], suffix)
    return Kernel(
        function=f"attention_many{suffix}",
        sizes=(*sizes, start.shape[0] - 1, together, queries),
        workgroups=parts * -(-tokens * together // queries),
        scalars=(attrs["scale"],),
    )


def _spread(sizes: tuple[int, ...], keys: int, scale: float, suffix: str) -> Kernel:
    """Scores of up to `keys` keys, spread over them, then values, spread over their widths."""
    tokens, heads, groups, width, *_ = sizes
    keys = -(-keys // LANES) * LANES
    slices = groups * -(-tokens * (heads // groups) // _QUERIES) * (width // _WIDTH_STEP)
    shares = min(slices, WORKGROUPS)
    scores = Kernel(
        function=f"attention_scores{suffix}",
        sizes=(*sizes, keys, WORKGROUPS),
        workgroups=WORKGROUPS,
        scalars=(scale,),
    )
    return Kernel(
        function=f"attention_mix{suffix}",
        sizes=(*sizes, keys, shares),
        workgroups=shares,
        scalars=(scale,),
        scratch=Scratch(kernel=scores, size=tokens * heads * keys),
    )


def _heads_together(shared: int) -> int:
    """Heads of one workgroup, which read keys together, of the `shared` heads of a group."""
    return max(heads for heads in range(1, _QUERIES + 1) if shared % heads == 0)


def _prefill_queries(tokens: int, heads: int, groups: int) -> int | None:
    """Queries of one workgroup of a prefill.

    None for few tokens: a decode step and a verification of drafts spread over keys and widths.
    """
    together = _heads_together(heads // groups)
    if tokens >= PREFILL_TOKENS:
        for count in _PREFILL_QUERIES:
            if heads // together * -(-tokens * together // count) >= WORKGROUPS:
                return count
    return None


def attention_sample(
    rng: np.random.Generator,
    tokens: int,
    start: int,
    window: int | None,
    *,
    sinks: bool = False,
) -> Sample:
    cache = (normal(rng, 7, 64), normal(rng, 7, 64))
    more = (normal(rng, 2),) if sinks else ()
    inputs = (normal(rng, tokens, 2, 64), *cache, np.array([start], np.int32), *more)
    limits = {"keys": 7} if window is None else {"keys": 30, "window": window}
    return Sample(inputs, {**limits, "scale": 0.2})


cached_attention: Fused = Fused(
    name="cached_attention",
    doc="`f.cached_attention`: softmax(scale * q k^T) v over the KV cache of one sequence.",
    reference=f.cached_attention.op.reference,
    limits=_limits,
    kernel=_kernel,
    samples=lambda rng: [
        attention_sample(rng, 1, 4, None),
        attention_sample(rng, 2, 20, 3),
        attention_sample(rng, 7, 0, None),
        attention_sample(rng, 2, 20, 3, sinks=True),
    ],
)


def integer_samples(rng: np.random.Generator, cache: tuple[Array, ...]) -> list[Sample]:
    """Samples of attention over a cache of integers: 7 rows of a head of 64 columns."""
    samples = [
        attention_sample(rng, 1, 4, None),
        attention_sample(rng, 2, 20, 3),
        attention_sample(rng, 7, 0, None),
        attention_sample(rng, 1, 4, None, sinks=True),
    ]
    return [
        Sample((query, *cache, *others), sample.attrs)
        for sample in samples
        for query, _, _, *others in (sample.inputs,)
    ]


def _cache_i8(rng: np.random.Generator) -> tuple[Array, ...]:
    key, value = rng.integers(-127, 128, (2, 7, 64), dtype=np.int8)
    scales = (rng.uniform(0.005, 0.02, (7, 1)).astype(np.float32) for _ in range(2))
    return key, value, *scales


int8_cache_attention: Fused = Fused(
    name="int8_cache_attention",
    doc="`f.int8_cache_attention`: softmax(scale * q k^T) v over the KV cache of one sequence, of "
    "int8 with a scale for each head of each row.",
    reference=f.int8_cache_attention.op.reference,
    no_gradient=f.int8_cache_attention.op.no_gradient,
    limits=_limits_i8,
    kernel=_kernel,
    samples=lambda rng: integer_samples(rng, _cache_i8(rng)),
)


# --- new rows of a cache of int8


def row_limits(types: Types, dtype: DType, width: int) -> None:
    """Raises TypeRuleError unless a cache has `width` values of each head that is written."""
    cache, places, x = types
    require(x.rank == 3 and x.dtype in (DType.F32, DType.F64), "heads f32 (N, G, D)")
    require(
        cache == TensorType((cache.shape[0], x.shape[1] * width), dtype),
        f"a cache {dtype} (R, {x.shape[1] * width})",
    )
    require(places == TensorType(x.shape[:1], DType.I32), "a place i32 for each row")
    require(x.shape[2] % LANES == 0, f"heads of a multiple of {LANES}")


def row_kernel(function: str, x: TensorType) -> Kernel:
    """The kernel that writes rows of heads x (N, G, D) into a cache."""
    rows, heads, width = x.shape
    return Kernel(function=function, sizes=(heads, width), workgroups=rows, in_place=True)


def new_rows(rng: np.random.Generator, cache: Array, *shape: int) -> Sample:
    """A sample of heads of a shape that are written into a cache."""
    places = rng.permutation(len(cache))[: shape[0]].astype(np.int32)
    return Sample((cache, places, normal(rng, *shape)))


write_int8_rows: Fused = Fused(
    name="write_int8_rows",
    doc="`f.write_int8_rows`: a cache of int8 with new rows, rounded.",
    reference=f.write_int8_rows.op.reference,
    limits=lambda types, _: row_limits(types, DType.I8, types[2].shape[-1]),
    kernel=lambda types, _, __: row_kernel("write_int8_rows", types[2]),
    samples=lambda rng: [
        new_rows(rng, rng.integers(-127, 128, (7, 32), dtype=np.int8), 3, 2, 16),
        new_rows(rng, rng.integers(-127, 128, (5, 48), dtype=np.int8), 1, 1, 48),
    ],
)

write_row_scales: Fused = Fused(
    name="write_row_scales",
    doc="`f.write_row_scales`: writes the scales of new rows of a cache of int8.",
    reference=f.write_row_scales.op.reference,
    limits=lambda types, _: row_limits(types, types[2].dtype, 1),
    kernel=lambda types, _, __: row_kernel("write_row_scales", types[2]),
    samples=lambda rng: [
        new_rows(rng, normal(rng, 7, 2), 3, 2, 16),
        new_rows(rng, normal(rng, 5, 1), 1, 1, 48),
    ],
)


# --- new rows of a cache of f16


def _write_f16_rows(
    cache: Tensor, places: Tensor, x: Tensor, *, rows: tuple[int, int], heads: tuple[int, int]
) -> Tensor:
    chosen = f.narrow(f.narrow(x, 0, *rows), 1, *heads)
    return f.write_f16_rows(cache, places, chosen)


def _f16_row_limits(types: Types, attrs: Attrs) -> None:
    cache, places, x = types
    (first, end), (start, stop) = attrs["rows"], attrs["heads"]
    require(x.rank == 3 and x.dtype in (DType.F32, DType.F64), "heads f32 (N, H, D)")
    columns = (stop - start) * x.shape[2]
    require(
        cache == TensorType((cache.shape[0], columns), DType.F16), f"a cache f16 (R, {columns})"
    )
    require(places == TensorType((end - first,), DType.I32), "a place i32 for each row")
    require(columns % LANES == 0, f"rows of a multiple of {LANES}")


def _f16_row_kernel(types: Types, attrs: Attrs) -> Kernel:
    _, heads, width = types[2].shape
    first, end = attrs["rows"]
    return Kernel(
        function="write_f16_rows",
        sizes=(first, heads, *attrs["heads"], width),
        workgroups=end - first,
        in_place=True,
    )


def _new_f16_rows(
    rng: np.random.Generator, rows: tuple[int, int], heads: tuple[int, int], *shape: int
) -> Sample:
    cache = normal(rng, 7, (heads[1] - heads[0]) * shape[2]).astype(np.float16)
    places = rng.permutation(len(cache))[: rows[1] - rows[0]].astype(np.int32)
    return Sample((cache, places, normal(rng, *shape)), {"rows": rows, "heads": heads})


write_f16_rows: Fused = Fused(
    name="write_f16_rows",
    doc="`f.write_f16_rows`: a cache of f16 with new rows: those from `rows[0]` up to `rows[1]` of "
    "x (N, H, D), and of these the heads from `heads[0]` up to `heads[1]`.",
    reference=_write_f16_rows,
    limits=_f16_row_limits,
    kernel=lambda types, _, attrs: _f16_row_kernel(types, attrs),
    samples=lambda rng: [
        _new_f16_rows(rng, (0, 3), (0, 2), 3, 2, 16),
        _new_f16_rows(rng, (1, 3), (2, 3), 4, 3, 48),
    ],
)
