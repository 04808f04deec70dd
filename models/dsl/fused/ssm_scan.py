"""The recurrence of Mamba-2, token by token: the state of a head stays in the first caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.fused.delta_rule import limit_states
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.ops.record import Attrs, Types

__all__ = ["ssm_scan"]


def _limits(types: Types, attrs: Attrs) -> None:
    states, positions, query, key, value, log_decay = types
    tokens, heads, _ = value.shape
    require(query.dtype in (DType.F32, DType.F64), "floats")
    require(positions == TensorType((2,), DType.I32), "positions i32 (2,)")
    require(
        query == key and heads % key.shape[1] == 0 and log_decay.shape == (tokens, heads),
        "queries and keys (T, G, K), values (T, H, V), H a multiple of G, and numbers (T, H)",
    )
    limit_states(states, key, value, attrs)


def _kernel(types: Types, attrs: Attrs) -> Kernel:
    (tokens, heads, width), (_, groups, keys) = types[4].shape, types[3].shape
    return Kernel(
        function="ssm_scan",
        sizes=(tokens, heads, groups, keys, width, attrs["ring"], int(attrs["every"])),
        workgroups=heads,
        in_place=True,
    )


def _sample(rng: np.random.Generator, first: int, *shape: int, ring: int, every: bool) -> Sample:
    tokens, groups, heads, keys, width = shape
    positions = np.array([first, first + tokens - 1], np.int32)
    query, key = (normal(rng, tokens, groups, keys) for _ in range(2))
    decay = rng.uniform(0.2, 1.0, (tokens, heads)).astype(np.float32)
    states = normal(rng, ring + 1, heads * keys * width)
    rows = (states, positions, query, key, normal(rng, tokens, heads, width), np.log(decay))
    return Sample(rows, {"ring": ring, "every": every})


ssm_scan: Fused = Fused(
    name="ssm_scan",
    doc="`f.ssm_scan`: a ring of states with those after new tokens, and their outputs.",
    reference=f.ssm_scan.op.reference,
    limits=_limits,
    kernel=lambda types, _, attrs: _kernel(types, attrs),
    no_gradient="the compiler fails on that of its function, `f.ssm_scan`",
    samples=lambda rng: [
        _sample(rng, 0, 5, 2, 4, 5, 16, ring=2, every=False),
        _sample(rng, 4, 2, 1, 1, 2, 80, ring=3, every=True),
    ],
)
