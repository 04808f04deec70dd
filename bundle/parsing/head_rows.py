"""The order of the rows of heads in GGUF files of models for which llama.cpp rotates neighbors."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    S = TypeVar("S", bound=np.generic)


def half_after_half(rows: NDArray[S], width: int) -> NDArray[S]:
    """Heads of `width` rows, from 0, D/2, 1, D/2 + 1, ... to 0, 1, ... D - 1: (H * D, ...)."""
    heads = rows.reshape(-1, width // 2, 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def side_by_side(rows: NDArray[S], width: int) -> NDArray[S]:
    """The inverse of `half_after_half`: (H * D, ...)."""
    heads = rows.reshape(-1, 2, width // 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)
