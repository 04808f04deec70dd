"""The gated delta rule, token by token: the state of a head stays in the first caches."""

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

__all__ = ["gated_delta_rule"]

_OF_RESULT, _PARTS = 3, 5  # query, key and value; a and b


def _gated_delta_rule(
    states: Tensor,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Tensor,
    rates: Tensor,
    *,
    columns: tuple[Range, ...],
    rows: Range,
    groups: int,
    takes_turns: bool,
    ring: int,
    every: bool,
) -> Tensor:
    query, key, value, a, b = chosen((query, key, value, a, b), columns, rows, _OF_RESULT)
    return f.gated_delta_rule(
        states, positions, query, key, value, a, b, bias, rates,
        groups=groups, takes_turns=takes_turns, ring=ring, every=every,
    )  # fmt: skip


def _limits(types: Types, attrs: Attrs) -> None:
    bias, rates = types[2 + _PARTS :]
    limit_states(types, attrs, bias.shape[0])
    _, _, _, a, b = (stop - start for start, stop in attrs["columns"])
    require(bias == rates and a == b == bias.shape[0], "a and b (T, H), and numbers (H,)")


def _kernel(types: Types, attrs: Attrs) -> Kernel:
    (heads,), parts = types[-1].shape, types[2 : 2 + _PARTS]
    (start, stop), _, (first, end), *_ = attrs["columns"]
    groups = attrs["groups"]
    sizes = (heads, groups, (stop - start) // groups, (end - first) // heads, attrs["ring"])
    flags = (int(attrs["every"]), int(attrs["takes_turns"]))
    return Kernel(
        function="gated_delta_rule",
        sizes=(types[4].shape[0], *sizes, *flags, *places(parts, attrs, _OF_RESULT)),
        workgroups=heads,
        in_place=True,
    )


def _sample(
    rng: np.random.Generator, first: int, *shape: int, ring: int, every: bool, padding: int
) -> Sample:
    tokens, groups, heads, keys, width = shape
    positions = np.array([first, first + tokens - 1], np.int32)
    widths = (groups * keys, groups * keys, heads * width, heads, heads)
    parts, attrs = padded_parts(rng, tokens, widths, _OF_RESULT, padding)
    states = normal(rng, ring + 1, heads * keys * width)
    inputs = (states, positions, *parts, normal(rng, heads), -positive(rng, heads))
    flags = {"ring": ring, "every": every, "groups": groups, "takes_turns": every}
    return Sample(inputs, {**attrs, **flags})


gated_delta_rule: Fused = Fused(
    name="gated_delta_rule",
    doc="`f.gated_delta_rule`: a ring of states with those after new tokens, and their outputs; of "
    "columns of queries, keys, values, a and b, and of some `rows` of the last two.",
    reference=_gated_delta_rule,
    limits=_limits,
    kernel=lambda types, _, attrs: _kernel(types, attrs),
    no_gradient="the compiler fails on that of its function, `f.gated_delta_rule`",
    samples=lambda rng: [
        _sample(rng, 0, 3, 1, 2, 5, 16, ring=2, every=False, padding=0),
        _sample(rng, 4, 2, 2, 4, 2, 32, ring=3, every=True, padding=1),
    ],
)
