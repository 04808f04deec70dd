"""The slopes of attention with linear biases in place of positions (ALiBi; Press et al., 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def alibi_slopes(heads: int, largest: float = 8.0) -> NDArray[np.float32]:
    """The slope of each head: 2^(-largest / n), 2^(-2 largest / n), ... for n heads.

    Of other numbers of heads than powers of two, the rest are the odd ones of twice the power.
    """
    power = 1 << (heads.bit_length() - 1)
    usual = 2.0 ** (-largest / power * np.arange(1, power + 1))
    between = 2.0 ** (-largest / (2 * power) * np.arange(1, 2 * power + 1, 2))
    return np.concatenate([usual, between])[:heads].astype(np.float32)
