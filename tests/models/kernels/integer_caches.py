"""KV caches of int8, and of 6 and 4 bits, with their values in f64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.models.kernels.attention_cases import cache_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

GROUP = 32


def quantized(x: Array) -> tuple[Array, Array]:
    """Heads (N, G, D) as integers, the largest magnitude as 127, and their scales."""
    largest = np.abs(x).max(axis=2).astype(np.float32)
    integers = np.rint(x * (np.float32(127) / largest)[..., np.newaxis]).astype(np.int8)
    return integers.reshape(len(x), -1), largest * np.float32(1 / 127)


def int8_cache_of(name: str) -> tuple[Array, list[Array], list[Array], int, int]:
    """The query, keys and values as stored, their values in f64, the start and the window."""
    query, key, value, start, window = cache_of(name)
    width = query.shape[2]
    pairs = [quantized(x.reshape(len(x), -1, width)) for x in (key, value)]
    stored = [integers for integers, _ in pairs] + [scales for _, scales in pairs]
    values = [
        integers.astype(np.float64) * np.repeat(scales.astype(np.float64), width, axis=1)
        for integers, scales in pairs
    ]
    return query, stored, values, start, window


def rotated(x: Array) -> Array:
    """Groups of 32 columns times the Hadamard matrix of the bits they share, in f64.

    Entry (i, j) is -1 to the number of bits that are set in both i and j.
    """
    numbers = np.arange(GROUP)
    shared = np.array([number.bit_count() for number in range(GROUP)])[
        numbers[:, np.newaxis] & numbers
    ]
    matrix = (-1.0) ** shared / math.sqrt(GROUP)
    turned: Array = x.reshape(-1, GROUP).astype(np.float64) @ matrix
    return turned.reshape(x.shape)


def unpacked(packed: Array, scales: Array) -> Array:
    """The values (R, G * D) of a cache, f64, of 4 bits or of 6."""
    groups = packed.reshape(*scales.shape, -1)
    halves = groups[..., : GROUP // 2].astype(np.int64)
    integers = np.concatenate([halves % 16 - 8, halves // 16], axis=2)
    for bit, at in enumerate(range(GROUP // 2, groups.shape[2], 4), start=4):
        plane = np.unpackbits(groups[..., at : at + 4].view(np.uint8), axis=2, bitorder="little")
        integers += (plane.astype(np.int64) << bit) - (1 << (bit - 1))
    return (integers * scales.astype(np.float64)[..., np.newaxis]).reshape(len(packed), -1)


def int4_cache_of(name: str) -> tuple[Array, list[Array], list[Array], int, int]:
    """The query, keys and values as stored, their values in f64, the start and the window."""
    query, key, _, start, window = cache_of(name)
    rows, columns = key.shape
    rng = np.random.default_rng(5)
    packed = [rng.integers(-128, 128, (rows, columns * n // 8), dtype=np.int8) for n in (6, 4)]
    scales = list(rng.uniform(-0.2, 0.2, (2, rows, columns // GROUP)).astype(np.float16))
    return query, packed + scales, list(map(unpacked, packed, scales)), start, window
