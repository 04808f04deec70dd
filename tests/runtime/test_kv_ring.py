"""Rows saved from rings and restored, compared with a list of all positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from typing_extensions import override

from hearthd.runtime.kv_ring import restore_rows, save_rows

CHUNK = 4
Caches = list[NDArray[np.float32]]


def caches_of(sizes: list[int]) -> Caches:
    return [np.zeros((rows, 2 + i), np.float32) for i, rows in enumerate(sizes)]


def write(caches: Caches, start: int, stop: int) -> None:
    """Write as a program does: position p into row p mod R, with the value p + 1."""
    for cache in caches:
        for position in range(start, stop):
            cache[position % len(cache)] = position + 1 + np.arange(cache.shape[1]) / 10


sizes = st.lists(st.integers(CHUNK, 11), min_size=1, max_size=3)


@given(sizes, st.integers(0, 5), st.integers(1, 5), st.integers(1, CHUNK))
def test_restored_rings_equal_written_rings(
    sizes: list[int], before: int, count: int, rest: int
) -> None:
    """The last block may be a short one."""
    written, restored = caches_of(sizes), caches_of(sizes)
    write(restored, 0, before * CHUNK)
    blocks = []
    end = (before + count - 1) * CHUNK + rest
    for start in range(0, end, CHUNK):
        stop = min(start + CHUNK, end)
        write(written, start, stop)
        if start >= before * CHUNK:
            blocks.append(save_rows(written, start, stop))
    assert restore_rows(restored, before * CHUNK, blocks) == end
    for a, b in zip(written, restored, strict=True):
        np.testing.assert_array_equal(a, b)


def test_blocks_without_caches_count_their_positions() -> None:
    """A model with states alone, such as Mamba, keeps no rows."""
    blocks = [save_rows([], 0, CHUNK), save_rows([], CHUNK, CHUNK + 3)]
    assert restore_rows([], 8, blocks) == 8 + CHUNK + 3


def test_a_block_is_a_copy() -> None:
    caches = caches_of([8])
    write(caches, 0, 4)
    block = save_rows(caches, 0, 4)
    kept = block.copy()
    write(caches, 8, 12)
    np.testing.assert_array_equal(block, kept)


def test_rows_that_would_be_overwritten_are_skipped() -> None:
    """A ring of one block gets the last of three blocks; the first two are not written."""
    written = []

    class Watched(np.ndarray):
        @override
        def __setitem__(self, rows: Any, values: Any) -> None:
            written.append(rows)

    caches = caches_of([CHUNK])
    block = save_rows(caches, 0, CHUNK)
    restore_rows([caches[0].view(Watched)], 0, [block, block, block])
    assert written == [slice(0, CHUNK)]


def test_a_block_of_another_size_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="a block of 7 bytes, expected a multiple of 8"):
        restore_rows(caches_of([8]), 0, [np.zeros(7, np.uint8)])


def test_a_ring_that_is_too_small_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="4 positions in a ring of 3"):
        save_rows(caches_of([3]), 0, 4)
