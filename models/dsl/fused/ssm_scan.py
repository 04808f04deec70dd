"""The recurrence of Mamba-2 with its time steps and gates, token by token.

The state of a head stays in the first-level caches of a core.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Sample, require
from hearthd.models.dsl.ops.samples import normal
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

__all__ = ["ssm_scan"]


def _limits(types: Types, attrs: Attrs) -> None:
    bias, rates, skip = types[COLUMN_INPUTS.stop :]
    limit_states(types, attrs, bias.shape[0])
    _, _, values, steps, gates = (stop - start for start, stop in attrs["columns"])
    require(
        bias == rates == skip and steps == bias.shape[0] and gates == values,
        "gates (T, H * V), time steps (T, H), and numbers (H,)",
    )


def _sample(
    rng: np.random.Generator, first: int, *shape: int, ring: int, every: bool, padding: int
) -> Sample:
    _, _, heads, _, width = shape
    sample = recurrence_sample(
        rng, first, shape, (heads, heads * width), ring=ring, every=every, padding=padding
    )
    return replace(sample, inputs=(*sample.inputs, normal(rng, heads)))


ssm_scan: Fused = Fused(
    name="ssm_scan",
    doc="`f.ssm_scan` of columns of queries, keys, inputs, time steps and gates, and of some "
    "`rows` of time steps and gates.",
    reference=of_columns(f.ssm_scan),
    limits=_limits,
    kernel=lambda types, _, attrs: recurrence_kernel("ssm_scan", types, attrs),
    no_gradient="the compiler fails on the gradient of `f.ssm_scan`",
    samples=lambda rng: [
        _sample(rng, 4, 2, 1, 1, 2, 80, ring=3, every=True, padding=1),
        _sample(rng, 0, 5, 2, 4, 5, 16, ring=2, every=False, padding=0),
    ],
)
