"""The benchmark of embeddings, against an encoder that needs no compiler."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.embeddings import embedded, short_texts
from tests.server import encoders, fakes


def test_texts_are_short_and_always_the_same() -> None:
    texts = short_texts(50)
    assert texts == short_texts(50)
    assert all(5 <= len(text.split()) <= 30 for text in texts)
    assert len(set(texts)) == 50


@pytest.mark.parametrize("batch", [1, 2, 10])
def test_vectors_are_in_the_order_of_the_texts(batch: int) -> None:
    with fakes.running(encoders.service(scores=False)) as client:
        vectors = embedded(client, str(client.base_url), ["the dog", "fox", "dog dog"], batch)
    alone = client_vectors(["the dog", "fox", "dog dog"])
    np.testing.assert_allclose(vectors, alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)


def client_vectors(texts: list[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The vectors by one request for each text, as counts of its tokens."""
    rows = []
    for text in texts:
        ids = [encoders.CLS, *map(encoders.WORDS.index, text.split()), encoders.SEP]
        rows.append(np.bincount(ids, minlength=len(encoders.WORDS)))
    counts = np.array(rows, np.float64)
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)
