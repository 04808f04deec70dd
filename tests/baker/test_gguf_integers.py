"""The integers of GGUF's types, against the values that the gguf package computes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.parameters.native import NATIVE
from hearthd.baker.parameters.quantization import NotFiniteError, encoded_integers
from hearthd.baker.weights import gguf_integers
from hearthd.baker.weights.source import IntegerBlock
from hearthd.models.dsl.matrix_format import FORMATS, INT8_HALVES
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.dsl.types import TypeRuleError
from tests.baker import gguf_blocks
from tests.baker.gguf_blocks import FACTORS, values_of
from tests.models.unpacked import float8, real_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS, COLUMNS = 32, 512


def random_rows(name: str) -> NDArray[np.uint8]:
    return gguf_blocks.random_rows(name, ROWS, COLUMNS)


def values(name: str) -> NDArray[np.float32]:
    return values_of(name, random_rows(name))


def test_every_type_with_a_storage_is_decoded() -> None:
    assert NATIVE.keys() == gguf_integers.TYPES.keys() == FACTORS.keys()


def by_column(block: IntegerBlock, *, floats: bool) -> list[NDArray[np.float32]]:
    """The scale of each column, and the minimum if there is one, f32 (N, K)."""
    result = []
    for i, factors in enumerate((block.scale, block.minimum)):
        if factors is None:
            continue
        values = np.repeat(factors, COLUMNS // factors.shape[1], axis=1)
        if block.multipliers is not None:
            each = COLUMNS // block.multipliers.shape[1]
            multipliers = block.multipliers[..., i]
            if floats:
                multipliers = float8(multipliers)
            values *= np.repeat(multipliers, each, axis=1)
        result.append(values)
    return result


@pytest.mark.parametrize("name", FACTORS)
def test_integers_times_scales_are_the_values_of_the_file(name: str) -> None:
    block = gguf_integers.decoded(name, random_rows(name), COLUMNS)
    form = FORMATS[NATIVE[name]]
    scale, *minimum = by_column(block, floats=form.multiplier_floats)
    numbered = np.array(form.values)[block.integers] if form.values else block.integers
    decoded = (numbered.astype(np.float32) - form.zero) * (scale / form.steps)
    for lowest in minimum:
        decoded += lowest
    np.testing.assert_array_equal(decoded, values(name))


def stored_arrays(name: str) -> tuple[NDArray[Any], ...]:
    """The arrays that a bundle stores for the blocks."""
    block = gguf_integers.decoded(name, random_rows(name), COLUMNS)
    storage = STORAGES[NATIVE[name]]
    arrays = encoded_integers(storage, block)
    expected = storage.arrays(ROWS, COLUMNS).values()
    assert [(x.shape, x.dtype) for x in arrays] == [(t.shape, t.dtype.numpy) for t in expected]
    return arrays


@pytest.mark.parametrize("name", FACTORS)
def test_every_type_is_stored_exactly(name: str) -> None:
    actual = real_weights(stored_arrays(name), FORMATS[NATIVE[name]])
    np.testing.assert_array_equal(actual, values(name))


@pytest.mark.parametrize("name", FACTORS)
def test_every_type_takes_about_the_bytes_of_the_file(name: str) -> None:
    size = sum(array.nbytes for array in stored_arrays(name))
    assert size <= 1.05 * random_rows(name).nbytes


@pytest.mark.parametrize(
    ("name", "changed", "reason"),
    [
        ("IQ3_S", slice(0, 8), "has no entry"),
        ("IQ2_XXS", slice(7, 8), "odd number of signs"),
        ("IQ1_S", slice(0, 8), "different ones"),
    ],
)
def test_integers_that_a_grid_does_not_have_are_rejected(
    name: str, changed: slice, reason: str
) -> None:
    form = FORMATS[NATIVE[name]]
    assert form.grid is not None
    block = gguf_integers.decoded(name, random_rows(name), COLUMNS)
    top = 1 << form.grid.level_bits
    block.integers[3, changed] = top - 1 if name == "IQ3_S" else block.integers[3, changed] ^ top
    with pytest.raises(TypeRuleError, match=reason):
        encoded_integers(STORAGES[NATIVE[name]], block)


def test_eight_bits_are_stored_in_halves_too() -> None:
    block = gguf_integers.decoded("Q8_0", random_rows("Q8_0"), COLUMNS)
    table = STORAGES["int8-g32"].table
    assert table is not None
    np.testing.assert_array_equal(
        real_weights(encoded_integers(table, block), INT8_HALVES), values("Q8_0")
    )


@pytest.mark.parametrize("name", ["int6-g16-s256", "int4-g32-min", "int8-g32"])
def test_a_table_of_any_number_of_rows_is_filled_with_its_last_row(name: str) -> None:
    storage = STORAGES[name].table
    assert storage is not None
    file_type = {"int6-g16-s256": "Q6_K", "int4-g32-min": "Q4_1"}.get(name, "Q8_0")

    def stored(rows: NDArray[np.uint8]) -> tuple[Any, ...]:
        block = gguf_integers.decoded(file_type, rows, COLUMNS)
        return encoded_integers(storage, block)

    rows = random_rows(file_type)
    filled = rows.copy()
    filled[20:] = rows[19]
    expected = storage.arrays(20, COLUMNS).values()
    for actual, full, type_ in zip(stored(rows[:20]), stored(filled), expected, strict=True):
        assert actual.shape == type_.shape
        np.testing.assert_array_equal(actual, full)


@pytest.mark.parametrize(("scale", "minimum"), [(np.nan, 0.0), (1e6, 0.0), (1.0, -np.inf)])
def test_a_factor_that_f16_cannot_hold_is_rejected(scale: float, minimum: float) -> None:
    block = IntegerBlock(
        integers=np.zeros((16, 32), np.uint8),
        scale=np.full((16, 1), scale, np.float32),
        minimum=np.full((16, 1), minimum, np.float32),
    )
    with pytest.raises(NotFiniteError, match=r"at \(0, 0\)"):
        encoded_integers(STORAGES["int4-g32-min"], block)
