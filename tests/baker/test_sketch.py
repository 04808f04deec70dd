"""The sketch of a drafter's head is stored from the values of its integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hearthd.baker.parameters.quantization import encoded, encoded_integers
from hearthd.baker.parameters.sketch import mean_row, real_values, sketch_of
from hearthd.baker.weights.source import IntegerBlock
from hearthd.models.dsl.fused.sketched_head import SKETCH
from hearthd.models.dsl.matrix_format import INT6_SUPER, INT8_HALVES, INT12, MatrixFormat
from hearthd.models.dsl.matrix_packing import pack
from hearthd.models.dsl.storage import STORAGES
from tests.models.unpacked import real_weights

STORAGE = (STORAGES["int8-g32"].table or STORAGES["int8-g32"]).sketched


def test_parts_of_rows_have_the_sketch_that_they_have_together() -> None:
    assert STORAGE is not None
    rows = np.random.default_rng(0).normal(size=(64, 96)).astype(np.float32) + 2
    center = mean_row([rows[:48], rows[48:]])
    np.testing.assert_allclose(center, rows.mean(axis=0), rtol=1e-6)
    together = encoded(STORAGE, rows, center)
    apart = [encoded(STORAGE, rows[some], center) for some in (slice(48), slice(48, None))]
    for array, parts in zip(together, zip(*apart, strict=True), strict=True):
        np.testing.assert_array_equal(array, np.concatenate(parts))


def test_columns_of_zeros_are_not_centered() -> None:
    rows = np.random.default_rng(0).normal(size=(16, 64)).astype(np.float32)
    rows[:, 40:] = 0
    values = real_weights(sketch_of(rows, np.ones(40, np.float32)), SKETCH)
    expected = real_weights(
        sketch_of(rows - (np.arange(64) < 40), np.zeros(64, np.float32)), SKETCH
    )
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("form", [INT6_SUPER, INT8_HALVES, INT12], ids=lambda form: form.name)
def test_a_sketch_has_the_values_of_integers(form: MatrixFormat) -> None:
    rng, (low, high) = np.random.default_rng(0), form.range
    integers: Any = rng.integers(low, high + 1, (16, 320))
    dtype = np.uint8 if not form.signed else np.int8 if form.bits <= 8 else np.int16
    super_blocks = -(-320 // (form.super_block or form.columns))
    block = IntegerBlock(
        integers=integers.astype(dtype),
        scale=rng.uniform(0.01, 0.1, (16, super_blocks)).astype(np.float16).astype(np.float32),
        minimum=None,
        multipliers=rng.integers(-9, 9, (16, 20, 1), np.int8) if form.has_multipliers else None,
    )
    arrays = pack(form, block.integers, block.scale.astype(np.float16), None, block.multipliers)
    values = real_values(block, form)
    np.testing.assert_allclose(values, real_weights(arrays, form), rtol=1e-6)
    (storage,) = (x.table.sketched for x in STORAGES.values() if x.table and x.table.format is form)
    assert storage is not None
    center = mean_row([values])
    stored = encoded_integers(storage, block, center)
    for actual, expected in zip(stored, (*arrays, *sketch_of(values, center)), strict=True):
        np.testing.assert_array_equal(actual, expected)
