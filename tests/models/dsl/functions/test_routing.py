"""The functions of a router by hand; test_functions_torch.py compares them with torch."""

from __future__ import annotations

import numpy as np

from hearthd.models.dsl import functions as f
from tests.models.graphs import run


def test_the_indices_of_the_largest_elements() -> None:
    """The first of equal elements comes first; a NaN still has an index in its row."""
    x = np.array([[1, 3, 2, 3], [0, -1, np.nan, 5]], np.float32)
    indices = run(lambda x: f.top_indices(x, count=3), x)
    assert indices[0].tolist() == [1, 3, 2]
    assert np.all((indices >= 0) & (indices < 4))


def test_a_sum_of_scores_has_an_offset_and_a_smallest_value() -> None:
    """By hand: 1 / (2 + 2), and 1 / 8; then times 2 and the scale 3 of expert 1."""
    logits, chosen = np.zeros((1, 2), np.float32), np.array([[1, 0]], np.int32)
    scale = np.array([1, 3], np.float32)
    for offset, least, whole in ((1.0, 0.0, 2.0), (0.0, 4.0, 4.0)):
        factors = run(
            lambda logits, chosen, scale, offset=offset, least=least: f.expert_factors(
                logits, chosen, scale,
                scores=f.SIGMOID, normalized=True, sum_offset=offset, min_sum=least, factor=2.0,
            ),
            logits, chosen, scale,
        )  # fmt: skip
        assert factors.tolist() == [[2 * 3 * 0.5 / whole, 2 * 0.5 / whole]]
