"""The low-rank terms of adapters under every instruction set, against f64."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl.fused.adapter_products import LANES, TERMS, adapter_blocks
from hearthd.models.dsl.fused.quantized_products import sample_matrix
from tests.models.kernels.kernel_library import FEW_AT_DAY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.matrix_format import MatrixFormat
    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]

PLACES = 4
# Rank, columns, and the rows of each matrix: a vector; parts of vectors; several workgroups.
SHAPES = [(4, 16, (16,)), (3, 21, (21, 5, 40)), (20, 640, (512, 256, 16))]
ROWS = [1, 3, 8, 45]
DTYPES = [np.int8, np.float16, np.float32]


class Case:
    """An adapter at every place, and rows of sequences that name them."""

    def __init__(
        self,
        shape: tuple[int, int, tuple[int, ...]],
        rows: int,
        per_row: int = 1,
        dtype: type[Any] = np.float16,
    ) -> None:
        rng = np.random.default_rng(rows)
        self.rank, columns, self.sources = shape
        is_small = dtype is np.int8
        self.rank = -(-self.rank // TERMS) * TERMS if is_small else self.rank
        terms = self.rank * len(self.sources)
        self.x = rng.normal(size=(rows * per_row, columns)).astype(np.float32)
        self.y = rng.normal(size=(rows * per_row, sum(self.sources))).astype(np.float32)
        self.chosen = rng.integers(0, PLACES + 1, rows, dtype=np.int32)
        self.scales = rng.normal(size=rows).astype(np.float32)
        size = 40 if is_small else 1
        self.a = (size * rng.normal(size=(PLACES, terms, columns))).clip(-127, 127).astype(dtype)
        blocks = sum(map(adapter_blocks, self.sources))
        self.together = together = TERMS if is_small else 1
        b = size * rng.normal(size=(PLACES, blocks, self.rank // together, LANES * together))
        self.b = b.clip(-127, 127).astype(dtype)
        b_scale = (rng.normal(size=(PLACES, blocks, LANES)) / size**2).astype(np.float16)
        self.b_scale = (b_scale,) if is_small else ()

    def only(self, row: int) -> Case:
        """The case of one of the rows."""
        one = object.__new__(Case)
        one.__dict__.update(vars(self))
        for name in ("x", "y", "chosen", "scales"):
            setattr(one, name, getattr(self, name)[row : row + 1].copy())
        return one

    def terms(self, kernels: Kernels) -> Array:
        out = np.full((len(self.x), self.a.shape[1]), np.nan, np.float32)
        return kernels("lora_down", (self.x, self.chosen, self.a), out)

    def output(self, kernels: Kernels) -> Array:
        inputs = (self.y, self.terms(kernels), self.chosen, self.scales, self.b, *self.b_scale)
        out = np.full(self.y.shape, np.nan, np.float32)
        return kernels("lora_up", inputs, out, sources=self.sources, first=0)

    def require_expected(self, output: Array) -> None:
        """Require y + scale * B A x by the formula, in f64."""
        expected, errors = self.y.astype(np.float64), np.full(self.y.shape, 2e-4)
        for row, x in enumerate(self.x):
            sequence = row * len(self.chosen) // len(self.x)
            if place := self.chosen[sequence]:
                added, rounding = self._added(x, place - 1)
                expected[row] += self.scales[sequence] * added
                errors[row] += np.abs(self.scales[sequence]) * rounding
        assert (np.abs(output - expected) <= errors + 2e-5 * np.abs(expected)).all()

    def _added(self, x: Array, place: int) -> tuple[Array, Array]:
        """B A x, and how much of it the rounding of terms to 16 bits can change."""
        terms = self.a[place].astype(np.float64) @ x
        parts, errors, block = [], [], 0
        for source, rows in enumerate(self.sources):
            count = adapter_blocks(rows)
            own = slice(block, block + count)
            factors = self.b[place, own].reshape(count, self.rank // self.together, LANES, -1)
            matrix = factors.transpose(0, 2, 1, 3).reshape(count * LANES, self.rank)
            matrix = matrix.astype(np.float64)
            for scale in self.b_scale:
                matrix *= scale[place, own].reshape(-1, 1)
            matrix, used = matrix[:rows], terms[source * self.rank : (source + 1) * self.rank]
            parts.append(matrix @ used)
            step = np.abs(used).max() / (127 * 254) if self.b_scale else 0.0
            errors.append(np.abs(matrix).sum(axis=1) * step)
            block += count
        return np.concatenate(parts), np.concatenate(errors)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_has_the_terms_of_its_place(
    kernels: Kernels, shape: tuple[int, int, tuple[int, ...]], rows: int, dtype: type[Any]
) -> None:
    case = Case(shape, rows, dtype=dtype)
    case.require_expected(case.output(kernels))


def test_the_rows_of_a_sequence_share_its_place(kernels: Kernels) -> None:
    case = Case(SHAPES[1], 2, per_row=19)
    case.require_expected(case.output(kernels))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rows", ROWS)
def test_a_row_has_the_same_bits_in_every_batch(
    kernels: Kernels, shape: tuple[int, int, tuple[int, ...]], rows: int
) -> None:
    for dtype in (np.int8, np.float16):
        case = Case(shape, rows, dtype=dtype)
        together = case.output(kernels)
        for row in range(rows):
            assert np.array_equal(case.only(row).output(kernels)[0], together[row])


def test_a_token_of_a_sequence_has_the_same_bits_alone(kernels: Kernels) -> None:
    case = Case(SHAPES[2], 1, per_row=19)
    case.chosen[:] = 3
    together = case.output(kernels)
    for row in range(19):
        one = case.only(row)
        one.chosen, one.scales = case.chosen, case.scales
        assert np.array_equal(one.output(kernels)[0], together[row])


@pytest.mark.parametrize("place", [0, -1, PLACES + 1])
def test_a_row_without_an_adapter_keeps_its_bits(kernels: Kernels, place: int) -> None:
    case = Case(SHAPES[1], 5)
    case.chosen[:] = place
    case.a[:], case.b[:] = np.nan, np.nan
    assert np.array_equal(case.output(kernels), case.y)
    assert not case.terms(kernels).any()
    with_scales = Case(SHAPES[1], 5, dtype=np.int8)
    with_scales.chosen[:] = place
    assert np.array_equal(with_scales.output(kernels), with_scales.y)


def test_factors_of_other_places_are_not_read(kernels: Kernels) -> None:
    case = Case(SHAPES[2], 4)
    case.chosen[:] = [2, 0, 2, 2]
    expected = case.output(kernels)
    for place in (0, 2, 3):
        case.a[place], case.b[place] = np.nan, np.nan
    assert np.array_equal(case.output(kernels), expected)


@pytest.mark.nightly
def test_every_instruction_set_gives_the_same_bits(built: BuiltKernels) -> None:
    for shape, dtype in product(SHAPES, DTYPES):
        case = Case(shape, 11, dtype=dtype)
        first, *others = (case.output(kernels) for kernels in built.values())
        assert all(np.array_equal(first, other) for other in others)


# --- linear_adapted


@pytest.mark.parametrize("form", FEW_AT_DAY, ids=lambda form: form.name)
@pytest.mark.parametrize("rows", [1, 3, 7, 8])
@pytest.mark.parametrize("activation_bits", [16, 8])
def test_a_product_with_adapters_has_the_bits_of_both_kernels(
    kernels: Kernels, form: MatrixFormat, rows: int, activation_bits: int
) -> None:
    case = Case((20, 32 * 65, (512, 256, 16)), rows, dtype=np.int8)
    outputs, columns = sum(case.sources), case.x.shape[1]
    matrix = sample_matrix(np.random.default_rng(1), form, outputs, columns)
    attrs: dict[str, Any] = {"matrix_format": form.name, "activation_bits": activation_bits}
    empty = np.full_like(case.y, np.nan)
    case.y = kernels("linear_quantized", (case.x, *matrix), empty.copy(), **attrs)
    adapters = (case.terms(kernels), case.chosen, case.scales, case.b, *case.b_scale, case.a)
    inputs = (case.x, *adapters, *matrix)
    attrs |= {"sources": case.sources, "first": 0}
    actual = kernels("linear_adapted", inputs, empty, **attrs)
    assert np.array_equal(actual, case.output(kernels))
    assert (actual != case.y).any() == case.chosen.any()
