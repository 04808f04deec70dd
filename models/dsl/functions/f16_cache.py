"""KV caches of f16."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.activations import clamp
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["write_f16_rows"]

_LARGEST = float(np.finfo(np.float16).max)


@composite()
def write_f16_rows(cache: Tensor, places: Tensor, x: Tensor) -> Tensor:
    """A cache f16 (R, E) with the rows x (N, ...), each of E values, at `places`, i32 (N,).

    Values beyond the range of f16 become its largest value.
    """
    rows = ops.reshape(x, shape=(x.shape[0], cache.shape[1]))
    narrow = ops.convert(clamp(rows, -_LARGEST, _LARGEST), dtype=DType.F16)
    return ops.scatter(cache, places, narrow, combine="replace")
