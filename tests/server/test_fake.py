"""The fake runtime keeps the promises of the protocol that it stands in for."""

from __future__ import annotations

import numpy as np

from server.runtime.fake import FakeRuntime


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
