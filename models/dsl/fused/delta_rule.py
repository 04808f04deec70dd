"""The gated delta rule, token by token: the state of a head stays in the first caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.ops.record import Attrs, Types

__all__ = ["gated_delta_rule"]

_LANES = 16  # as the kernel has them


def limit_states(states: TensorType, key: TensorType, value: TensorType, attrs: Attrs) -> None:
    """Raise TypeRuleError unless a ring of states fits keys (T, G, K) and values (T, H, V)."""
    tokens, heads, width = value.shape
    ring = attrs["ring"]
    require(
        states.shape[1] == heads * key.shape[2] * width
        and (states.shape[0] - ring) * states.shape[1] >= value.size
        and ring > (tokens if attrs["every"] else 1),
        "a ring of states (H * K * V,), with room for the outputs behind it",
    )
    require(width % _LANES == 0, f"values of a multiple of {_LANES}")


def _limits(types: Types, attrs: Attrs) -> None:
    states, positions, query, key, value, log_decay, rate = types
    tokens, heads, _ = value.shape
    require(query.dtype in (DType.F32, DType.F64), "floats")
    require(positions == TensorType((2,), DType.I32), "positions i32 (2,)")
    require(
        query == key and log_decay == rate and rate.shape == (tokens, heads),
        "queries and keys (T, H, K), values (T, H, V) and numbers (T, H)",
    )
    limit_states(states, key, value, attrs)


def _kernel(types: Types, attrs: Attrs) -> Kernel:
    tokens, heads, width = types[4].shape
    return Kernel(
        function="gated_delta_rule",
        sizes=(tokens, heads, types[3].shape[2], width, attrs["ring"], int(attrs["every"])),
        workgroups=heads,
        in_place=True,
    )


def _sample(rng: np.random.Generator, first: int, *shape: int, ring: int, every: bool) -> Sample:
    tokens, heads, keys, width = shape
    key = normal(rng, tokens, heads, keys)
    key = key / np.sqrt((key * key).sum(axis=2, keepdims=True))
    positions = np.array([first, first + tokens - 1], np.int32)
    rows = (normal(rng, tokens, heads, keys), key, normal(rng, tokens, heads, width))
    decay, rate = (rng.uniform(0.2, 1.0, (tokens, heads)).astype(np.float32) for _ in range(2))
    states = normal(rng, ring + 1, heads * keys * width)
    return Sample((states, positions, *rows, np.log(decay), rate), {"ring": ring, "every": every})


gated_delta_rule: Fused = Fused(
    name="gated_delta_rule",
    doc="`f.gated_delta_rule`: a ring of states with those after new tokens, and their outputs.",
    reference=f.gated_delta_rule.op.reference,
    limits=_limits,
    kernel=lambda types, _, attrs: _kernel(types, attrs),
    no_gradient="the compiler fails on that of its function, `f.gated_delta_rule`",
    samples=lambda rng: [
        _sample(rng, 0, 3, 2, 5, 16, ring=2, every=False),
        _sample(rng, 4, 2, 1, 2, 80, ring=3, every=True),
    ],
)
