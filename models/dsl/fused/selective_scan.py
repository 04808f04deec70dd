"""The recurrence of Mamba with its time steps and gates, token by token.

The states of some channels stay in the first-level cache of a core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal, positive
from hearthd.models.dsl.recurrence_inputs import (
    COLUMN_INPUTS,
    LANES,
    of_columns,
    offsets_and_strides,
)
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.ops.record import Attrs, Types

__all__ = ["selective_scan"]

_SHARE = 64  # channels of a workgroup


def _limits(types: Types, attrs: Attrs) -> None:
    states, positions, *_, bias, rates, skip = types
    queries, keys, *channels = (stop - start for start, stop in attrs["columns"])
    tokens, ring = attrs["rows"][1] - attrs["rows"][0], attrs["ring"]
    width, inner = rates.shape
    require(bias.dtype in (DType.F32, DType.F64), "floats")
    require(positions == TensorType((2,), DType.I32), "positions i32 (2,)")
    require(
        queries == keys == width
        and {*channels} == {inner}
        and bias == skip
        and bias.shape == (inner,),
        "queries and keys (T, K), x, time steps and gates (T, I), rates (K, I), numbers (I,)",
    )
    require(
        states.shape[1] == width * inner
        and (states.shape[0] - ring) * states.shape[1] >= tokens * inner
        and ring > (tokens if attrs["every"] else 1),
        "a ring of states (K * I,), with room for the outputs behind it",
    )
    require(inner % LANES == 0, f"channels of a multiple of {LANES}")


def _kernel(types: Types, attrs: Attrs) -> Kernel:
    keys, inner = types[-2].shape
    tokens = attrs["rows"][1] - attrs["rows"][0]
    sizes = (tokens, inner, keys, attrs["ring"], int(attrs["every"]), _SHARE)
    return Kernel(
        function="selective_scan",
        sizes=(*sizes, *offsets_and_strides(types[COLUMN_INPUTS], attrs, convolved=0)),
        workgroups=-(-inner // _SHARE),
        in_place=True,
    )


def _sample(
    rng: np.random.Generator, first: int, *shape: int, ring: int, every: bool, padding: int
) -> Sample:
    tokens, keys, inner = shape
    widths = (keys, keys, inner, inner, inner)
    tensors = (normal(rng, tokens + padding, columns + 2 * padding) for columns in widths)
    states = normal(rng, ring + -(-tokens // keys), keys * inner)
    positions = np.array([first, first + tokens - 1], np.int32)
    attrs = {
        "columns": tuple((padding, padding + columns) for columns in widths),
        "rows": (padding, padding + tokens),
        "ring": ring,
        "every": every,
    }
    numbers = normal(rng, inner), -positive(rng, keys, inner), normal(rng, inner)
    return Sample((states, positions, *tensors, *numbers), attrs)


selective_scan: Fused = Fused(
    name="selective_scan",
    doc="`f.selective_scan` of some `rows`, and columns, of queries, keys, inputs, time steps and "
    "gates.",
    reference=of_columns(f.selective_scan, convolved=0),
    limits=_limits,
    kernel=lambda types, _, attrs: _kernel(types, attrs),
    no_gradient="the compiler fails on the gradient of `f.selective_scan`",
    samples=lambda rng: [
        _sample(rng, 4, 2, 4, 16, ring=3, every=True, padding=1),
        _sample(rng, 0, 5, 3, 80, ring=2, every=False, padding=0),
    ],
)
