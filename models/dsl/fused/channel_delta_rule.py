"""The delta rule with a decay for each column of a key, token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal, positive
from hearthd.models.dsl.recurrence_inputs import LANES
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.ops.record import Attrs, Types

__all__ = ["channel_delta_rule"]

_MAX_KEYS = 256  # the kernel keeps so many decays of a token


def _limits(types: Types, attrs: Attrs) -> None:
    states, positions, query, key, value, *others = types
    heads, ring, tokens = attrs["heads"], attrs["ring"], value.shape[0]
    require(value.dtype in (DType.F32, DType.F64), "floats")
    require(positions == TensorType((2,), DType.I32), "positions i32 (2,)")
    require(
        all(x == key for x in (query, *others))
        and key.shape[0] == tokens
        and key.shape[1] % heads == value.shape[1] % heads == 0,
        "values (T, H * V), and queries, keys, decays, probes and what is removed (T, H * K)",
    )
    require(
        states.shape[1] == key.shape[1] // heads * value.shape[1]
        and (states.shape[0] - ring) * states.shape[1] >= tokens * value.shape[1]
        and ring > (tokens if attrs["every"] else 1),
        "a ring of states (H * K * V,), with room for the outputs behind it",
    )
    require(value.shape[1] // heads % LANES == 0, f"values of a multiple of {LANES}")
    require(key.shape[1] // heads <= _MAX_KEYS, f"keys of at most {_MAX_KEYS}")


def _kernel(types: Types, attrs: Attrs) -> Kernel:
    heads, (tokens, inner) = attrs["heads"], types[4].shape
    keys = types[3].shape[1] // heads
    return Kernel(
        function="channel_delta_rule",
        sizes=(tokens, heads, keys, inner // heads, attrs["ring"], int(attrs["every"])),
        workgroups=heads,
        in_place=True,
    )


def _sample(rng: np.random.Generator, first: int, *shape: int, ring: int, every: bool) -> Sample:
    tokens, heads, keys, width = shape
    states = normal(rng, ring + 1, heads * keys * width)
    positions = np.array([first, first + tokens - 1], np.int32)
    query, key, probe, removed = (normal(rng, tokens, heads * keys) for _ in range(4))
    decay, value = -positive(rng, tokens, heads * keys), normal(rng, tokens, heads * width)
    rows = (query, key, value, decay, probe * 0.3, removed * 0.3)
    return Sample((states, positions, *rows), {"heads": heads, "ring": ring, "every": every})


channel_delta_rule: Fused = Fused(
    name="channel_delta_rule",
    doc="`f.channel_delta_rule`, token by token.",
    reference=f.channel_delta_rule,
    limits=_limits,
    kernel=lambda types, _, attrs: _kernel(types, attrs),
    no_gradient="the compiler fails on the gradient of `f.channel_delta_rule`",
    samples=lambda rng: [
        _sample(rng, 0, 3, 2, 5, 16, ring=2, every=False),
        _sample(rng, 4, 2, 2, 3, 32, ring=3, every=True),
    ],
)
