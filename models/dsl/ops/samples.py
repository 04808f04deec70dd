"""Arrays that the ops' samples are made of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hearthd.models.dsl.ops.record import Array

__all__ = ["distinct", "integers", "normal", "positive"]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    """f32 around 0."""
    return rng.normal(size=shape).astype(np.float32)


def positive(rng: np.random.Generator, *shape: int) -> Array:
    """f32 between 0.5 and 2."""
    return rng.uniform(0.5, 2.0, size=shape).astype(np.float32)


def distinct(rng: np.random.Generator, *shape: int) -> Array:
    """f32 at least 1/8 apart from each other and 1/16 from 0, so that a maximum has a gradient."""
    size = math.prod(shape)
    order = rng.permutation(size) - size // 2
    return ((order + 0.5) / 8.0).reshape(shape).astype(np.float32)


def integers(rng: np.random.Generator, *shape: int) -> Array:
    """i32 from 1 to 39."""
    return rng.integers(1, 40, size=shape, dtype=np.int32)
