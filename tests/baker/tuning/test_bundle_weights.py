"""The real weights of a bundle's stored matrices, against plain NumPy.

test_adapter_places.py tests whole bundles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from hearthd.baker.tuning.bundle_weights import BundleWeights, stored_values
from hearthd.bundle.parsing.head_rows import half_after_half
from hearthd.models.dsl import storage
from hearthd.models.dsl.fused.quantized_products import sample_matrix
from hearthd.models.program import StoredTensor
from tests.models.unpacked import real_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS, COLUMNS = 48, 64


def sample(one: storage.Storage) -> tuple[NDArray[Any], ...]:
    rng = np.random.default_rng(0)
    if one.format is not None:
        return sample_matrix(rng, one.format, ROWS, COLUMNS)
    (type_,) = one.arrays(ROWS, COLUMNS).values()
    return (rng.normal(size=type_.shape).astype(type_.dtype.numpy),)


@pytest.mark.parametrize(
    "one",
    [
        *storage.STORAGES.values(),
        *(one.table for one in storage.STORAGES.values() if one.table is not None),
    ],
    ids=lambda one: one.name,
)
def test_stored_matrices_have_their_real_weights(one: storage.Storage) -> None:
    arrays = sample(one)
    if one.format is not None:
        expected = real_weights(arrays, one.format)
    else:
        assert arrays[0].dtype in (np.float32, ml_dtypes.bfloat16)
        expected = arrays[0].astype(np.float32)
    values = stored_values(one, arrays)
    assert values.shape == (ROWS, COLUMNS)
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-7)


def test_rows_have_the_order_of_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Hugging Face folders have the rows of both halves of a head in turn."""
    rows = np.arange(48, dtype=np.float32).reshape(16, 3)
    weights: Any = object.__new__(BundleWeights)
    weights._weights = {"q": (None, "q", StoredTensor("q", interleaved=8))}
    monkeypatch.setattr(weights, "_blocks", lambda _: iter((rows[:5], rows[5:])))
    np.testing.assert_array_equal(half_after_half(np.concatenate([*weights.blocks("q")]), 8), rows)
