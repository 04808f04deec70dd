"""Whether weights are read in blocks."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

from hearthd.baker.weights.source import BLOCK_BYTES

if TYPE_CHECKING:
    from hearthd.baker.weights.source import WeightSource


def require_streamed(source: WeightSource, tensor: str, rows: int) -> None:
    """Read a tensor of some rows; fail if it takes the memory of three blocks."""
    tracemalloc.start()
    try:
        assert sum(len(block) for block in source.blocks(tensor)) == rows
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * BLOCK_BYTES
