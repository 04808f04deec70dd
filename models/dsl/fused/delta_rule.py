"""The gated delta rule, token by token: a head's state stays in a core's first-level caches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Sample, require
from hearthd.models.dsl.recurrence_inputs import (
    COLUMN_INPUTS,
    limit_states,
    of_columns,
    recurrence_kernel,
    recurrence_sample,
)

if TYPE_CHECKING:
    import numpy as np

    from hearthd.models.dsl.ops.record import Attrs, Types

__all__ = ["gated_delta_rule"]


def _limits(types: Types, attrs: Attrs) -> None:
    bias, rates = types[COLUMN_INPUTS.stop :]
    limit_states(types, attrs, bias.shape[0])
    _, _, _, a, b = (stop - start for start, stop in attrs["columns"])
    require(bias == rates and a == b == bias.shape[0], "a and b (T, H), and numbers (H,)")


def _sample(
    rng: np.random.Generator, first: int, *shape: int, ring: int, every: bool, padding: int
) -> Sample:
    heads = shape[2]
    sample = recurrence_sample(
        rng, first, shape, (heads, heads), ring=ring, every=every, padding=padding
    )
    return replace(sample, attrs={**sample.attrs, "takes_turns": every})


gated_delta_rule: Fused = Fused(
    name="gated_delta_rule",
    doc="`f.gated_delta_rule` of columns of queries, keys, values, a and b, and of some `rows` of "
    "a and b.",
    reference=of_columns(f.gated_delta_rule),
    limits=_limits,
    kernel=lambda types, _, attrs: recurrence_kernel(
        "gated_delta_rule", types, attrs, attrs["takes_turns"]
    ),
    no_gradient="the compiler fails on the gradient of `f.gated_delta_rule`",
    samples=lambda rng: [
        _sample(rng, 4, 2, 2, 4, 2, 32, ring=3, every=True, padding=1),
        _sample(rng, 0, 3, 1, 2, 5, 16, ring=2, every=False, padding=0),
    ],
)
