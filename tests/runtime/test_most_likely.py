"""The token that a drafter drafts, and its probability."""

from __future__ import annotations

import numpy as np
import pytest

from hearthd.runtime.iree.device_drafter import most_likely


@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("computed", [1, 100])
def test_the_probability_of_a_draft_is_its_softmax(spread: float, computed: int) -> None:
    """Of flat and of steep logits, of all tokens or of one in a hundred."""
    rng = np.random.default_rng(3)
    logits = np.full(50_000, -1e30, np.float32)
    logits[::computed] = rng.normal(scale=spread, size=len(logits[::computed]))
    exponents = np.exp(logits.astype(np.float64) - logits.max())
    token, probability = most_likely(logits)
    assert token == logits.argmax()
    assert probability == pytest.approx(1 / exponents.sum(), rel=6e-4)
