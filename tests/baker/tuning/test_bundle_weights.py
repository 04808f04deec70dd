"""The real weights of a bundle's stored matrices, against plain NumPy. See test_adapter_places.py
for those of whole bundles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from hearthd.baker.tuning.bundle_weights import _dequantized
from hearthd.models.dsl import storage
from hearthd.models.dsl.fused.small_products import sample_small
from hearthd.models.dsl.types import DType
from tests.models.unpacked import real_weights, small_weights, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS, COLUMNS = 48, 64


def sample(one: storage.Storage) -> list[NDArray[Any]]:
    rng = np.random.default_rng(0)
    if one.form is not None:
        return sample_small(rng, one.form, ROWS, COLUMNS)
    arrays: list[NDArray[Any]] = []
    for type_ in one.arrays(ROWS, COLUMNS).values():
        if type_.dtype is DType.I8:
            arrays.append(rng.integers(-127, 128, type_.shape, dtype=np.int8))
        else:
            arrays.append(rng.normal(size=type_.shape).astype(type_.dtype.numpy))
    return arrays


@pytest.mark.parametrize(
    "one",
    [
        *storage.STORAGES.values(),
        storage.INT8_G32_HALVES,
        storage.INT6_G16_TABLE,
        storage.INT12_G32_TABLE,
    ],
    ids=lambda one: one.name,
)
def test_stored_matrices_have_their_real_weights(one: storage.Storage) -> None:
    arrays = sample(one)
    if one.form is not None:
        expected = small_weights(arrays, bits=one.form.bits, has_minimum=one.form.minimum)
    elif one is storage.INT8_G32_HALVES:
        expected = real_weights(whole(arrays[0], arrays[1]), arrays[2])
    elif one is storage.INT8_G32:
        expected = real_weights(*arrays)
    else:
        assert arrays[0].dtype in (np.float32, ml_dtypes.bfloat16)
        expected = arrays[0].astype(np.float32)
    values = _dequantized(one, arrays)
    assert values.shape == (ROWS, COLUMNS)
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-7)
