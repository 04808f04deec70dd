"""Products with the matrices of experts in NumPy: each chosen matrix is evaluated once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl.functions.products import by_expert

if TYPE_CHECKING:
    from numpy.typing import NDArray


def test_a_chosen_expert_is_evaluated_once_and_another_not_at_all() -> None:
    rng = np.random.default_rng(2)
    x, weight = rng.normal(size=(7, 3)), rng.normal(size=(5 * 2, 3))
    chosen = np.array([3, 0, 3, 9, -2, 3, 1], np.int32)  # those that do not exist are the nearest
    seen: list[tuple[int, float]] = []

    def product(rows: NDArray[Any], matrix: NDArray[Any]) -> NDArray[Any]:
        seen.append((len(rows), matrix[0, 0]))
        return np.asarray(rows @ matrix.T)

    actual = by_expert((x, chosen, weight), {"experts": 5}, product)
    each = [(2, weight[0, 0]), (1, weight[2, 0]), (3, weight[6, 0]), (1, weight[8, 0])]
    assert sorted(seen) == sorted(each)  # in any order: threads share them
    matrices = weight.reshape(5, 2, 3)[np.clip(chosen, 0, 4)]
    np.testing.assert_allclose(actual, np.einsum("mk,mnk->mn", x, matrices))
