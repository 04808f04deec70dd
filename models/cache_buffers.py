"""The buffers of caches: their types in graphs, and as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from hearthd.bundle import CacheSpec


def cache_types(caches: Iterable[CacheSpec]) -> dict[str, TensorType]:
    """The type of the buffer of each cache, by the cache's name."""
    return {spec.name: TensorType(spec.shape, DType.named(spec.stored_dtype)) for spec in caches}


def empty_caches(caches: Iterable[CacheSpec]) -> list[NDArray[Any]]:
    """Buffers of zeros, in the order of the caches: a new sequence."""
    return [np.zeros(type_.shape, type_.dtype.numpy) for type_ in cache_types(caches).values()]
