"""Attention of heads with sinks, under every instruction set of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.models.kernels.attention_cases import KEYS, SCALE, attended, cache_of, sinks_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import Kernels

    Array = NDArray[Any]

# Of a few tokens and of many; the last ones in f16.
NAMES = (
    "a first token", "eight heads share", "a prefill, with three queries left over",
    "a ring that has wrapped, in f16", "a prefill that wraps a ring, in f16",
)  # fmt: skip


def attention(kernels: Kernels, query: Array, cache: list[Array], start: int, window: int) -> Array:
    inputs = (query, *cache, np.array([start], np.int32), sinks_of(query))
    out = np.full_like(query, np.nan)
    return kernels("cached_attention", inputs, out, keys=KEYS, window=window, scale=SCALE)


@pytest.mark.parametrize("name", NAMES)
def test_a_sink_takes_part_in_the_softmax_and_has_no_value(kernels: Kernels, name: str) -> None:
    query, key, value, start, window = cache_of(name)
    together = attention(kernels, query, [key, value], start, window)
    expected = attended(query, key, value, start, window, sinks_of(query))
    np.testing.assert_allclose(together, expected, atol=1e-5)
    for i in range(len(query)):
        alone = attention(kernels, query[i : i + 1].copy(), [key, value], start + i, window)
        assert np.array_equal(alone[0], together[i])
