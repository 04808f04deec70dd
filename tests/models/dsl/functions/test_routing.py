"""The functions of a router by hand; test_functions_torch.py compares them with torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.types import TypeRuleError
from tests.models.graphs import run

if TYPE_CHECKING:
    from numpy.typing import NDArray


def test_the_indices_of_the_largest_elements() -> None:
    """The first of equal elements comes first; a NaN still has an index in its row."""
    x = np.array([[1, 3, 2, 3], [0, -1, np.nan, 5]], np.float32)
    indices = run(lambda x: f.top_indices(x, count=3), x)
    assert indices[0].tolist() == [1, 3, 2]
    assert np.all((indices >= 0) & (indices < 4))


def test_the_best_groups_have_the_largest_sums_of_two_scores() -> None:
    """By hand: the sums are 0.9, 1.0 and 0.8, and in the second row 0.3, 0.3 and -1."""
    scores = np.array([[0.9, 0, 0.5, 0.5, 0.1, 0.7], [0.1, 0.2, 0, 0.3, -1, 0]], np.float32)
    for count, kept in ((1, [[2, 3], [0, 1]]), (2, [[0, 1, 2, 3], [0, 1, 2, 3]])):
        limited = run(
            lambda scores, count=count: f.in_best_groups(scores, groups=3, count=count), scores
        )
        for row, columns in enumerate(kept):
            assert np.isfinite(limited[row]).nonzero()[0].tolist() == columns
            assert np.array_equal(limited[row, columns], scores[row, columns])
    with pytest.raises(TypeRuleError, match="6 experts do not form 4 equal groups"):
        run(lambda scores: f.in_best_groups(scores, groups=4, count=1), scores)


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


@pytest.mark.parametrize("scores", [f.SIGMOID, f.SOFTMAX])
def test_the_largest_logits_have_the_highest_scores_where_scores_saturate(scores: str) -> None:
    """The scores of several experts are 1, or 0, so that they do not tell which is likelier."""
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(6, 64)).astype(np.float32) * 4
    logits[:3] += np.float32(30 if scores == f.SIGMOID else 0)
    logits[3:] *= np.float32(40)
    score = f.sigmoid if scores == f.SIGMOID else f.softmax
    values = run(score, logits)
    highest = np.sort(values, axis=1)[:, :-9:-1]
    assert (np.diff(highest) == 0).any()

    def routed(logits: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        chosen = run(lambda x: f.top_indices(x, count=8), logits)
        factors = run(
            lambda logits, chosen: f.expert_factors(
                logits, chosen,
                scores=scores, normalized=False, sum_offset=0.0, min_sum=0.0, factor=1.0,
            ),
            logits, chosen,
        )  # fmt: skip
        return chosen, factors

    chosen, factors = routed(logits)
    assert np.array_equal(factors, highest)
    assert np.array_equal(chosen, np.argsort(-logits, axis=1, kind="stable")[:, :8])
    for row in range(6):
        alone = routed(logits[row : row + 1])
        assert all(
            np.array_equal(a[0], b[row]) for a, b in zip(alone, (chosen, factors), strict=True)
        )
