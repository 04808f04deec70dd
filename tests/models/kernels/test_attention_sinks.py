"""Attention of heads with sinks, under every instruction set of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.models.kernels.attention_cases import KEYS, SCALE, attended, cache_of
from tests.models.kernels.test_cache_kernels import int8_cache_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import Kernels

    Array = NDArray[Any]

# Of a few tokens and of many; the last ones in f16.
NAMES = (
    "a first token", "eight heads share", "a prefill, with three queries left over",
    "a ring that has wrapped, in f16", "a prefill that wraps a ring, in f16",
)  # fmt: skip


def sinks_of(query: Array) -> Array:
    """Sinks of all heads: far below the scores, far above them, and among them."""
    count = query.shape[1]
    return np.resize(np.array([-1e30, 300.0, 0.5, -2.0, 3.0], np.float32), count)


def attention(kernels: Kernels, query: Array, cache: list[Array], start: int, window: int) -> Array:
    op = "int8_cache_attention" if cache[0].dtype == np.int8 else "cached_attention"
    inputs = (query, *cache, np.array([start], np.int32), sinks_of(query))
    out = np.full_like(query, np.nan)
    return kernels(op, inputs, out, keys=KEYS, window=window, scale=SCALE)


def close(actual: Array, query: Array, key: Array, value: Array, start: int, window: int) -> None:
    expected = attended(query, key, value, start, window, sinks_of(query))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_sink_takes_part_in_the_softmax_and_has_no_value(kernels: Kernels, name: str) -> None:
    query, key, value, start, window = cache_of(name)
    together = attention(kernels, query, [key, value], start, window)
    close(together, query, key, value, start, window)
    for i in range(len(query)):
        alone = attention(kernels, query[i : i + 1].copy(), [key, value], start + i, window)
        assert np.array_equal(alone[0], together[i])


@pytest.mark.parametrize("name", NAMES[:3])
def test_a_sink_beside_a_cache_of_int8(kernels: Kernels, name: str) -> None:
    query, stored, (key, value), start, window = int8_cache_of(name)
    actual = attention(kernels, query, stored, start, window)
    close(actual, query, key, value, start, window)
