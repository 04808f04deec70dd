"""Attention over KV caches of integers under every instruction set of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.models.kernels.attention_cases import FORMS, KEYS, SCALE, attended, sinks_of
from tests.models.kernels.integer_caches import int4_cache_of, int8_cache_of, rotated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]

CACHES = {"int8": int8_cache_of, "int4": int4_cache_of}
NAMES = [name for name in FORMS if not name.endswith("in f16")]
SINK_NAMES = (
    "a first token", "eight heads share", "a ring that has wrapped",
    "a prefill, with three queries left over",
)  # fmt: skip
each_cache = pytest.mark.parametrize("bits", CACHES)
each_form = pytest.mark.parametrize("name", NAMES)


def attention(
    kernels: Kernels,
    bits: str,
    query: Array,
    stored: list[Array],
    start: int,
    window: int,
    *sinks: Array,
) -> Array:
    inputs = (query, *stored, np.array([start], np.int32), *sinks)
    attrs = {"keys": KEYS, "window": window, "scale": SCALE}
    return kernels(f"{bits}_cache_attention", inputs, np.full_like(query, np.nan), **attrs)


def close(actual: Array, bits: str, expected: Array) -> None:
    """The result of attention over a cache of 4 bits is rotated back."""
    expected = rotated(expected) if bits == "int4" else expected
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@each_cache
@each_form
def test_attention_is_the_softmax_over_the_stored_values(
    kernels: Kernels, bits: str, name: str
) -> None:
    query, stored, (key, value), start, window = CACHES[bits](name)
    actual = attention(kernels, bits, query, stored, start, window)
    close(actual, bits, attended(query, key, value, start, window))


@each_cache
@each_form
def test_a_token_attends_with_the_same_bits_alone(kernels: Kernels, bits: str, name: str) -> None:
    query, stored, _, start, window = CACHES[bits](name)
    together = attention(kernels, bits, query, stored, start, window)
    for i in range(len(query)):
        alone = attention(kernels, bits, query[i : i + 1].copy(), stored, start + i, window)
        assert np.array_equal(alone[0], together[i])


@each_cache
@each_form
def test_keys_that_are_not_seen_have_no_effect(kernels: Kernels, bits: str, name: str) -> None:
    query, stored, _, start, window = CACHES[bits](name)
    actual = attention(kernels, bits, query, stored, start, window)
    newest = start + len(query) - 1
    seen = {p % len(stored[0]) for p in range(max(0, start - window + 1), newest + 1)}
    for row in set(range(len(stored[0]))) - seen:
        for array in stored:
            array[row] = 127
    assert np.array_equal(attention(kernels, bits, query, stored, start, window), actual)


@each_cache
@pytest.mark.parametrize("name", SINK_NAMES)
def test_sinks_take_part_in_the_softmax(kernels: Kernels, bits: str, name: str) -> None:
    query, stored, (key, value), start, window = CACHES[bits](name)
    sinks = sinks_of(query)
    actual = attention(kernels, bits, query, stored, start, window, sinks)
    close(actual, bits, attended(query, key, value, start, window, sinks))


@each_cache
def test_every_instruction_set_gives_the_same_bits(built: BuiltKernels, bits: str) -> None:
    for name in NAMES:
        query, stored, _, start, window = CACHES[bits](name)
        first, *others = (
            attention(kernels, bits, query, stored, start, window) for kernels in built.values()
        )
        assert all(np.array_equal(first, other) for other in others)
