"""The recurrence of Mamba-2 with its time steps and gates, token by token.

The state of a head stays in the first caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.chosen_columns import (
    chosen,
    limit_states,
    padded_parts,
    places,
)
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal, positive

if TYPE_CHECKING:
    from hearthd.models.dsl.chosen_columns import Range
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Attrs, Types

__all__ = ["ssm_scan"]

_OF_RESULT, _PARTS = 3, 5  # query, key and x; steps and gate


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
    query, key, x, steps, gate = chosen((query, key, x, steps, gate), columns, rows, _OF_RESULT)
    return f.ssm_scan(
        states, positions, query, key, x, steps, gate, bias, rates, skip,
        groups=groups, ring=ring, every=every,
    )  # fmt: skip


def _limits(types: Types, attrs: Attrs) -> None:
    bias, rates, skip = types[2 + _PARTS :]
    limit_states(types, attrs, bias.shape[0])
    _, _, values, steps, gates = (stop - start for start, stop in attrs["columns"])
    require(
        bias == rates == skip and steps == bias.shape[0] and gates == values,
        "gates (T, H * V), time steps (T, H), and numbers (H,)",
    )


def _kernel(types: Types, attrs: Attrs) -> Kernel:
    (heads,), parts, groups = types[-1].shape, types[2 : 2 + _PARTS], attrs["groups"]
    (start, stop), _, (first, end), *_ = attrs["columns"]
    sizes = (heads, groups, (stop - start) // groups, (end - first) // heads, attrs["ring"])
    of_parts = places(parts, attrs, _OF_RESULT)
    return Kernel(
        function="ssm_scan",
        sizes=(types[4].shape[0], *sizes, int(attrs["every"]), *of_parts),
        workgroups=heads,
        in_place=True,
    )


def _sample(
    rng: np.random.Generator, first: int, *shape: int, ring: int, every: bool, padding: int
) -> Sample:
    tokens, groups, heads, keys, width = shape
    positions = np.array([first, first + tokens - 1], np.int32)
    widths = (groups * keys, groups * keys, heads * width, heads, heads * width)
    parts, attrs = padded_parts(rng, tokens, widths, _OF_RESULT, padding)
    states = normal(rng, ring + 1, heads * keys * width)
    numbers = (normal(rng, heads), -positive(rng, heads), normal(rng, heads))
    inputs = (states, positions, *parts, *numbers)
    return Sample(inputs, {**attrs, "ring": ring, "every": every, "groups": groups})


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
