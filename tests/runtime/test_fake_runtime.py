"""The fake runtime keeps the contract of runtime/interface.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.fake_runtime import FakeRuntime

if TYPE_CHECKING:
    from hearthd.runtime.interface import Rows


def test_an_embedding_is_a_sum_whatever_the_chunks() -> None:
    runtime = FakeRuntime(vocab_size=11, context=16, slots=2)
    whole = runtime.embed(0, [1, 2, 3, 4], 0)
    parts = runtime.embed(1, [1, 2, 3], 0) + runtime.embed(1, [4], 3)
    assert whole.shape == (runtime.hidden,)
    assert whole.dtype == np.float32
    np.testing.assert_allclose(whole, parts, atol=1e-6)
    assert np.abs(whole - runtime.embed(0, [1, 2, 4, 3], 0)).max() > 0.1


def test_an_embedding_reads_its_tokens() -> None:
    runtime = FakeRuntime(vocab_size=11, context=16, slots=2)
    runtime.embed(0, [1, 2, 3], 0)
    runtime.prefill(1, [1, 2, 3], 0)
    alone, other = (runtime.decode([slot], [4], [3]) for slot in (0, 1))
    np.testing.assert_array_equal(alone, other)


def read_blocks(runtime: FakeRuntime, tokens: list[int], slot: int = 0) -> list[Rows]:
    """Read whole chunks and save each."""
    blocks = []
    for start in range(0, len(tokens), runtime.chunk):
        stop = start + runtime.chunk
        runtime.prefill(slot, tokens[start:stop], start)
        blocks.append(runtime.save(slot, start, stop))
    return blocks


def test_restored_blocks_have_the_bits_of_read_tokens() -> None:
    runtime = FakeRuntime(vocab_size=11, context=16, slots=2, chunk=2)
    blocks = read_blocks(runtime, [1, 2, 3, 4])
    alone = runtime.decode([0], [5], [4])
    runtime.restore(1, 0, blocks[:1])
    runtime.restore(1, 2, blocks[1:])
    np.testing.assert_array_equal(runtime.decode([1], [5], [4]), alone)


def test_only_the_latest_prefill_can_be_saved() -> None:
    runtime = FakeRuntime(vocab_size=11, context=16, chunk=2)
    read_blocks(runtime, [1, 2, 3, 4])
    with pytest.raises(AssertionError, match="no prefill wrote 0 to 2"):
        runtime.save(0, 0, 2)
    runtime.decode([0], [5], [4])
    with pytest.raises(AssertionError, match="no prefill wrote 2 to 4"):
        runtime.save(0, 2, 4)


def test_only_saved_blocks_can_be_restored_and_only_in_place() -> None:
    runtime = FakeRuntime(vocab_size=11, context=16, chunk=2)
    blocks = read_blocks(runtime, [1, 2, 3, 4])
    with pytest.raises(AssertionError, match="never saved"):
        runtime.restore(0, 0, [np.zeros(16, np.uint8)])
    with pytest.raises(AssertionError, match="a block of position 2, put elsewhere"):
        runtime.restore(0, 0, blocks[1:])
    runtime.prefill(0, [1, 9], 0)
    with pytest.raises(AssertionError, match="follows something else"):
        runtime.restore(0, 2, blocks[1:])
