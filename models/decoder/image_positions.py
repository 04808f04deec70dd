"""Rotary positions of several axes, which the rows of an image have (M-RoPE)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
from hearthd.models.dsl import ops

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor

AXES = 3  # time, row and column


def require_sections(sections: tuple[int, ...], width: int) -> None:
    """Raise ConfigError unless there is a section of the pairs of `width` columns by each axis."""
    if len(sections) != AXES or sum(sections) != width // 2:
        raise ConfigError(
            f"mrope_section: got {sections}, expected {AXES} numbers whose sum is {width // 2}"
        )


def by_column(positions: Tensor, axes: NDArray[np.int32]) -> Tensor:
    """Positions i32 (axes, N) -> the position of each pair of columns, i32 (N, pairs).

    `axes` has the axis of each pair.
    """
    by_token = ops.transpose(positions, order=(1, 0))
    return ops.gather(by_token, ops.constant(value=axes), axis=1)
