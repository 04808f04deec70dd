"""The low-rank terms of LoRA adapters; each sequence of a batch has its own adapter or none.

A projection y = x W^T becomes y + scale * (x A^T) B^T (Hu et al., 2021). A program has places for
adapters; a sequence names its place, from 1 on, or 0 for no adapter. A row without an adapter is
not changed, and of the places only those that are named are read.

In shape comments `N` is rows, sequence after sequence, `S` sequences, `P` places, `R` the rank,
 `K` the width of x, `T` the ranks of all matrices that read x together, and `M` outputs.

Factors are floats, or int8. Then the scales of A's rows are part of B, the scales of B's rows, its
outputs, are an input, and products with B round the terms of a matrix to 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.activations import STEPS, require_rows, rounded
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

__all__ = [
    "LANES",
    "MAX_SMALL_RANK",
    "MAX_SOURCES",
    "TERMS",
    "adapter_blocks",
    "adapter_sizes",
    "lora_down",
    "lora_up",
    "rank_of",
]

# Outputs whose factors B are stored together.
LANES = 16
# Matrices whose rows follow each other in one product.
MAX_SOURCES = 4
# Up to this many rows, as in decoding, each row has workgroups of its own.
_FEW_ROWS = 8
_ROWS, _MIN_WORKGROUPS = 8, 8
# Terms that a kernel computes at a time. Factors B i8 of as many are stored together.
TERMS = 4
# The largest rank of factors i8.
MAX_SMALL_RANK = 64


def adapter_blocks(rows: int) -> int:
    """The blocks of `LANES` outputs in which a matrix of this many rows is stored."""
    return -(-rows // LANES)


def _per_row(values: Tensor, rows: int) -> Tensor:
    """A value of each sequence, (S,), for each of its rows: (N,)."""
    count = values.shape[0]
    repeated = ops.broadcast(values, shape=(count, rows // count), axes=(0,))
    return ops.reshape(repeated, shape=(rows,))


def _chosen_factors(factors: Tensor, chosen: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """The factors (P, ...) of each row's place, (N, ...), and whether it has one, (N,)."""
    places = _per_row(chosen, like.shape[0])
    zero = ops.full_like(places, 0)
    gathered = ops.gather(factors, ops.maximum(places + -1, zero), axis=0)
    wide = gathered if gathered.dtype is like.dtype else ops.convert(gathered, dtype=like.dtype)
    return wide, ops.compare(places, zero, direction="GT")


def _lora_down(x: Tensor, chosen: Tensor, a: Tensor) -> Tensor:
    """x A^T of the place of each row, or zeros."""
    factors, has_one = _chosen_factors(a, chosen, x)
    terms = ops.dot_general(x, factors, batch=((0,), (0,)), contract=((1,), (2,)), dtype=x.dtype)
    return ops.select(
        ops.broadcast(has_one, shape=terms.shape, axes=(0,)), terms, ops.full_like(terms, 0.0)
    )


def _by_terms(factors: Tensor) -> Tensor:
    """Factors B i8 (N, blocks, R / 4, 64) in the order of floats: (N, blocks, R, 16)."""
    rows, blocks, fours, _ = factors.shape
    split = ops.reshape(factors, shape=(rows, blocks, fours, LANES, TERMS))
    ordered = ops.transpose(split, order=(0, 1, 2, 4, 3))
    return ops.reshape(ordered, shape=(rows, blocks, fours * TERMS, LANES))


def _lora_up(
    y: Tensor,
    terms: Tensor,
    chosen: Tensor,
    scales: Tensor,
    b: Tensor,
    b_scale: Tensor | None = None,
    *,
    sources: tuple[int, ...],
    first: int,
) -> Tensor:
    """y plus the low-rank terms of each row's place."""
    rows, rank = y.shape[0], rank_of(b.type)
    factors, has_one = _chosen_factors(b, chosen, y)
    row_scales = None
    if b_scale is not None:
        factors, row_scales = _by_terms(factors), _chosen_factors(b_scale, chosen, y)[0]
    parts, block = [], 0
    for source, outputs in enumerate(sources, first):
        count = adapter_blocks(outputs)
        source_terms = f.narrow(terms, 1, source * rank, (source + 1) * rank)
        product = ops.dot_general(
            source_terms if row_scales is None else rounded(source_terms, STEPS, group=rank),
            f.narrow(factors, 1, block, block + count),
            batch=((0,), (0,)),
            contract=((1,), (2,)),
            dtype=y.dtype,
        )
        if row_scales is not None:
            product = product * f.narrow(row_scales, 1, block, block + count)
        padded = ops.reshape(product, shape=(rows, count * LANES))
        parts.append(f.narrow(padded, 1, 0, outputs))
        block += count
    added = ops.concatenate(*parts, axis=1)
    scale = ops.broadcast(_per_row(scales, rows), shape=y.shape, axes=(0,))
    changed = ops.broadcast(has_one, shape=y.shape, axes=(0,))
    return ops.select(changed, y + added * scale, y)


def _require_places(x: TensorType, chosen: TensorType, factors: TensorType, rank: int) -> None:
    require_rows(x)
    require(
        chosen.rank == 1 and chosen.dtype is DType.I32 and x.shape[0] % chosen.shape[0] == 0,
        "places i32 (S,), one for each sequence of the rows",
    )
    require(
        factors.rank == rank
        and factors.dtype in (x.dtype, DType.F16, DType.I8)
        and min(factors.shape) >= 1,
        f"factors of {rank} axes, i8, f16 or of the dtype of x",
    )


def _down_limits(types: Types, _: Attrs) -> None:
    x, chosen, a = types
    _require_places(x, chosen, a, 3)
    require(a.shape[2] == x.shape[1], "factors (P, T, K)")


def rank_of(b: TensorType) -> int:
    """The rank of factors B."""
    return b.shape[2] * (TERMS if b.dtype is DType.I8 else 1)


def _up_limits(types: Types, attrs: Attrs) -> None:
    y, terms, chosen, scales, b, *b_scale = types
    _require_places(y, chosen, b, 4)
    sources, first = attrs["sources"], attrs["first"]
    require(1 <= len(sources) <= MAX_SOURCES, f"1 to {MAX_SOURCES} matrices")
    require(sum(sources) == y.shape[1] and min(sources) >= 1, "the rows of each matrix")
    is_small = b.dtype is DType.I8
    blocks, last = sum(map(adapter_blocks, sources)), LANES * (TERMS if is_small else 1)
    require(
        b.shape[1:] == (blocks, b.shape[2], last),
        f"factors (P, blocks of {LANES} outputs, R, {LANES}), or i8 (P, blocks, R / {TERMS}, "
        f"{LANES * TERMS})",
    )
    require(not is_small or rank_of(b) <= MAX_SMALL_RANK, f"a rank of at most {MAX_SMALL_RANK}")
    require(
        terms.rank == 2
        and terms.dtype is y.dtype
        and terms.shape[0] == y.shape[0]
        and first >= 0
        and (first + len(sources)) * rank_of(b) <= terms.shape[1],
        "the terms of each matrix",
    )
    require(scales == TensorType(chosen.shape, y.dtype), "scales (S,) of the dtype of y")
    require(
        b_scale == [TensorType((*b.shape[:2], LANES), DType.F16)] * is_small,
        f"scales f16 (P, blocks of {LANES} outputs, {LANES}) of factors i8",
    )


def _shares(rows: int) -> int:
    """The rows that a workgroup computes."""
    return 1 if rows <= _FEW_ROWS else _ROWS


def _function(name: str, factors: TensorType) -> str:
    return name if factors.dtype is DType.F32 else f"{name}_{factors.dtype.label}"


def _down_kernel(types: Types, result: TensorType, _: Attrs) -> Kernel:
    x, chosen, a = types
    rows, terms = result.shape
    share = _shares(rows)
    row_parts = -(-rows // share)
    term_parts = min(-(-_MIN_WORKGROUPS // row_parts), -(-terms // TERMS))
    term_share = -(-terms // (term_parts * TERMS)) * TERMS
    return Kernel(
        function=_function("lora_down", a),
        sizes=(share, term_share, rows // chosen.shape[0], rows, terms, x.shape[1], a.shape[0]),
        workgroups=row_parts * -(-terms // term_share),
    )


def adapter_sizes(types: Types, attrs: Attrs) -> tuple[int, ...]:
    """The arguments of a kernel that say how the inputs of `lora_up` are stored."""
    y, terms, chosen, _, b, *_ = types
    rank = rank_of(b)
    sources = (*attrs["sources"], *[0] * MAX_SOURCES)[:MAX_SOURCES]
    return (
        y.shape[0] // chosen.shape[0],
        terms.shape[1], attrs["first"] * rank, rank, b.shape[0], *sources,
    )  # fmt: skip


def _up_kernel(types: Types, result: TensorType, attrs: Attrs) -> Kernel:
    b = types[4]
    rows, outputs = result.shape
    share = _shares(rows)
    row_parts = -(-rows // share)
    blocks = -(-b.shape[1] // -(-_MIN_WORKGROUPS // row_parts))
    return Kernel(
        function=_function("lora_up", b),
        sizes=(share, blocks, rows, outputs, *adapter_sizes(types, attrs)),
        workgroups=row_parts * -(-b.shape[1] // blocks),
        in_place=True,
    )


def _places(*places: int) -> Array:
    return np.array(places, np.int32)


def _integers(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-127, 128, shape, dtype=np.int8)


lora_down: Fused = Fused(
    name="lora_down",
    doc="Rows (N, K) times the factors A (P, T, K) of the place of their sequence, from 1 "
    "on; zeros for place 0.",
    reference=_lora_down,
    limits=_down_limits,
    kernel=_down_kernel,
    samples=lambda rng: [
        Sample((normal(rng, 1, 32), _places(1), normal(rng, 1, 4, 32))),
        Sample((normal(rng, 3, 19), _places(2, 0, 1), normal(rng, 2, 5, 19))),
        Sample((normal(rng, 14, 16), _places(0, 2), _integers(rng, 2, 4, 16))),
    ],
)

lora_up: Fused = Fused(
    name="lora_up",
    doc="y (N, M) plus, times a scale, the terms (N, T) times the factors B (P, blocks of 16 "
    "outputs, R, 16), of the place of each row's sequence; y for place 0. Factors i8 (P, blocks, "
    "R / 4, 64), with terms rounded to 16 bits, have scales f16 (P, blocks, 16) of their outputs.",
    reference=_lora_up,
    limits=_up_limits,
    kernel=_up_kernel,
    samples=lambda rng: [
        Sample(
            (normal(rng, 2, 16), normal(rng, 2, 8), _places(2, 0), normal(rng, 2),
             _integers(rng, 2, 1, 2, LANES * TERMS),
             normal(rng, 2, 1, LANES).astype(np.float16)),
            {"sources": (16,), "first": 0},
        ),
        Sample(
            (normal(rng, 1, 16), normal(rng, 1, 4), _places(1), normal(rng, 1),
             normal(rng, 1, 1, 4, LANES)),
            {"sources": (16,), "first": 0},
        ),
        Sample(
            (normal(rng, 3, 31), normal(rng, 3, 9), _places(2, 0, 1), normal(rng, 3),
             normal(rng, 2, 3, 3, LANES)),
            {"sources": (21, 10), "first": 1},
        ),
    ],
)  # fmt: skip
