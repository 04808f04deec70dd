"""The gated delta rule, token by token: the state of a head stays in the first caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.ops.record import Attrs, Types

__all__ = ["delta_rule_states"]

_LANES = 16  # as the kernel has them


def _limits(types: Types, _: Attrs) -> None:
    query, key, value, log_decay, rate, state = types
    tokens, heads, width = value.shape
    require(query.dtype in (DType.F32, DType.F64), "floats")
    require(
        query == key
        and log_decay == rate
        and rate.shape == (tokens, heads)
        and state.shape == (heads, key.shape[2], width),
        "queries and keys (T, H, K), values (T, H, V), numbers (T, H) and a state (H, K, V)",
    )
    require(width % _LANES == 0, f"values of a multiple of {_LANES}")


def _kernel(types: Types, attrs: Attrs) -> Kernel:
    tokens, heads, width = types[2].shape
    return Kernel(
        function="delta_rule_states",
        sizes=(tokens, heads, types[1].shape[2], width, int(attrs["every"])),
        workgroups=heads,
    )


def _sample(
    rng: np.random.Generator, tokens: int, heads: int, keys: int, width: int, *, every: bool
) -> Sample:
    key = normal(rng, tokens, heads, keys)
    key = key / np.sqrt((key * key).sum(axis=2, keepdims=True))
    rows = (normal(rng, tokens, heads, keys), key, normal(rng, tokens, heads, width))
    decay, rate = (rng.uniform(0.2, 1.0, (tokens, heads)).astype(np.float32) for _ in range(2))
    return Sample((*rows, np.log(decay), rate, normal(rng, heads, keys, width)), {"every": every})


delta_rule_states: Fused = Fused(
    name="delta_rule_states",
    doc="`f.delta_rule_states`: a memory's outputs (T * H * V,), and behind them its states.",
    reference=f.delta_rule_states.op.reference,
    limits=_limits,
    kernel=lambda types, _, attrs: _kernel(types, attrs),
    no_gradient="the compiler fails on that of its function, `f.delta_rule_states`",
    samples=lambda rng: [
        _sample(rng, 3, 2, 5, 16, every=False),
        _sample(rng, 2, 1, 2, 80, every=True),
    ],
)
