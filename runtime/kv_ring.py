"""Save rows of the KV caches of a slot as blocks, and restore them.

A cache is a ring of R rows: position p is in row p mod R (docs/architecture.md). This module
knows the ring and the format of a block. It knows no device, no model and no policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hearthd.runtime.interface import Rows


def save_rows(caches: Sequence[NDArray[Any]], start: int, stop: int) -> Rows:
    """The rows of positions start to stop - 1 of caches (R, width), one cache after the other.

    Every cache has at least stop - start rows. Without caches, a block has a byte for each
    position, which counts them.
    """
    size = (stop - start) * _position_bytes(caches)
    # np.empty asks the kernel for huge pages, which takes four times as long.
    block = np.frombuffer(bytearray(size), np.uint8)
    for cache, rows in _parts(caches, block, stop - start):
        for ring_rows, block_rows in _segments(start, stop, len(cache)):
            rows[block_rows] = cache[ring_rows]
    return block


def restore_rows(caches: Sequence[NDArray[Any]], start: int, blocks: Sequence[Rows]) -> int:
    """Write consecutive blocks into caches (R, width); returns the position after the last one.

    Rows that later ones would overwrite are skipped.
    """
    position_bytes = _position_bytes(caches)
    counts = [block.nbytes // position_bytes for block in blocks]
    first, stop = start, start + sum(counts)
    for block, count in zip(blocks, counts, strict=True):
        for cache, rows in _parts(caches, block, count):
            oldest = max(first, stop - len(cache))
            for ring_rows, block_rows in _segments(oldest, first + count, len(cache)):
                cache[ring_rows] = rows[oldest - first :][block_rows]
        first += count
    return stop


def _parts(
    caches: Sequence[NDArray[Any]], block: Rows, positions: int
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Pairs of a cache and its rows in the block, a view (positions, width)."""
    size = _position_bytes(caches)
    message = f"a block of {block.nbytes} bytes, expected a multiple of {size}"
    assert block.nbytes == positions * size, message
    at = 0
    for cache in caches:
        end = at + positions * _row_bytes(cache)
        yield cache, block[at:end].view(cache.dtype).reshape(positions, -1)
        at = end


def _segments(start: int, stop: int, rows: int) -> Iterator[tuple[slice, slice]]:
    """The rows of positions start to stop - 1 in the ring and in the block: one segment or two."""
    assert stop - start <= rows, f"{stop - start} positions in a ring of {rows}"
    done = start
    while done < stop:
        row = done % rows
        count = min(stop - done, rows - row)
        yield slice(row, row + count), slice(done - start, done - start + count)
        done += count


def _position_bytes(caches: Sequence[NDArray[Any]]) -> int:
    """The bytes of a position in a block."""
    return sum(map(_row_bytes, caches)) or 1


def _row_bytes(cache: NDArray[Any]) -> int:
    return int(cache.shape[1]) * cache.dtype.itemsize
