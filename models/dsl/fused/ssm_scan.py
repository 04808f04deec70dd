"""The recurrence of Mamba-2 with its time steps and gates, token by token.

The state of a head stays in the first caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.fused.delta_rule import limit_states
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal, positive
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Attrs, Types

    Range = tuple[int, int]

__all__ = ["ssm_scan"]

_PARTS = 5  # tensors of which the kernel reads some columns: query, key, x, steps and gate


def _ssm_scan(
    states: Tensor,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    x: Tensor,
    steps: Tensor,
    gate: Tensor,
    bias: Tensor,
    rates: Tensor,
    skip: Tensor,
    *,
    columns: tuple[Range, ...],
    rows: Range,
    groups: int,
    ring: int,
    every: bool,
) -> Tensor:
    steps, gate = (f.narrow(part, 0, *rows) for part in (steps, gate))
    parts = zip((query, key, x, steps, gate), columns, strict=True)
    chosen = (f.narrow(part, 1, *some) for part, some in parts)
    return f.ssm_scan(
        states, positions, *chosen, bias, rates, skip, groups=groups, ring=ring, every=every
    )


def _limits(types: Types, attrs: Attrs) -> None:
    states, positions, query, key, x, *_ = types
    bias, rates, skip = types[2 + _PARTS :]
    tokens, (heads,) = x.shape[0], bias.shape
    keys, key_columns, values, steps, gates = (stop - start for start, stop in attrs["columns"])
    require(x.dtype in (DType.F32, DType.F64), "floats")
    require(positions == TensorType((2,), DType.I32), "positions i32 (2,)")
    require(
        query.shape[0] == key.shape[0] == tokens == attrs["rows"][1] - attrs["rows"][0]
        and keys == key_columns
        and keys % attrs["groups"] == heads % attrs["groups"] == 0,
        "queries and keys (T, G * K), H a multiple of G",
    )
    require(
        bias == rates == skip and steps == heads and gates == values and values % heads == 0,
        "inputs and gates (T, H * V), time steps (T, H), and numbers (H,)",
    )
    key = key.with_shape(tokens, attrs["groups"], keys // attrs["groups"])
    limit_states(states, key, x.with_shape(tokens, heads, values // heads), attrs)


def _kernel(types: Types, attrs: Attrs) -> Kernel:
    parts, (heads,), groups = types[2 : 2 + _PARTS], types[-1].shape, attrs["groups"]
    (start, stop), _, (first, end), *_ = attrs["columns"]
    places = []
    for i, (part, columns) in enumerate(zip(parts, attrs["columns"], strict=True)):
        stride = part.shape[1]
        row = attrs["rows"][0] if i > 2 else 0
        places += [row * stride + columns[0], stride]
    sizes = (heads, groups, (stop - start) // groups, (end - first) // heads, attrs["ring"])
    return Kernel(
        function="ssm_scan",
        sizes=(parts[2].shape[0], *sizes, int(attrs["every"]), *places),
        workgroups=heads,
        in_place=True,
    )


def _sample(
    rng: np.random.Generator, first: int, *shape: int, ring: int, every: bool, padding: int
) -> Sample:
    """Columns of tensors that have `padding` more on each side, and as many rows more."""
    tokens, groups, heads, keys, width = shape
    positions = np.array([first, first + tokens - 1], np.int32)
    widths = (groups * keys, groups * keys, heads * width, heads, heads * width)
    rows = [tokens] * 3 + [tokens + padding] * 2
    parts = (
        normal(rng, count, columns + 2 * padding)
        for count, columns in zip(rows, widths, strict=True)
    )
    states = normal(rng, ring + 1, heads * keys * width)
    bias, skip = normal(rng, heads), normal(rng, heads)
    return Sample(
        (states, positions, *parts, bias, -positive(rng, heads), skip),
        {
            "ring": ring,
            "every": every,
            "groups": groups,
            "rows": (padding, padding + tokens),
            "columns": tuple((padding, padding + width) for width in widths),
        },
    )


ssm_scan: Fused = Fused(
    name="ssm_scan",
    doc="`f.ssm_scan`: a ring of states with those after new tokens, and their gated outputs; of "
    "columns of queries, keys, inputs, time steps and gates, and of some `rows` of the last two.",
    reference=_ssm_scan,
    limits=_limits,
    kernel=lambda types, _, attrs: _kernel(types, attrs),
    no_gradient="the compiler fails on that of its function, `f.ssm_scan`",
    samples=lambda rng: [
        _sample(rng, 0, 5, 2, 4, 5, 16, ring=2, every=False, padding=0),
        _sample(rng, 4, 2, 1, 1, 2, 80, ring=3, every=True, padding=1),
    ],
)
