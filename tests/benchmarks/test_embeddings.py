"""The benchmark of embeddings, against an encoder that needs no compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.embeddings import embedded, short_texts
from tests.server import encoders, fakes

if TYPE_CHECKING:
    from numpy.typing import NDArray


def test_texts_are_short_and_always_the_same() -> None:
    texts = short_texts(50)
    assert texts == short_texts(50)
    assert all(5 <= len(text.split()) <= 30 for text in texts)
    assert len(set(texts)) == 50


@pytest.mark.parametrize("batch", [1, 2, 10])
def test_vectors_are_in_the_order_of_the_texts(batch: int) -> None:
    with fakes.running(encoders.service(scores=False)) as client:
        vectors = embedded(client, str(client.base_url), ["the dog", "fox", "dog dog"], batch)
    np.testing.assert_allclose(vectors, counted(["the dog", "fox", "dog dog"]), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)


def counted(texts: list[str]) -> list[NDArray[np.float64]]:
    """The vectors that the encoder has for texts: counts of their tokens, of length 1."""
    counts = [
        np.bincount(
            [encoders.CLS, *map(encoders.WORDS.index, text.split()), encoders.SEP],
            minlength=len(encoders.WORDS),
        )
        for text in texts
    ]
    return [row / np.linalg.norm(row) for row in counts]
