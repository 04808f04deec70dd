"""The product with the sketch of an output head under every instruction set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl.fused import linear_sketch
from hearthd.models.dsl.fused.quantized_products import sample_matrix
from hearthd.models.dsl.fused.sketched_head import SKETCH
from hearthd.models.dsl.types import DType, TensorType, Unsupported
from tests.models.unpacked import real_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]

# Less than a super-block; workgroups of unequal size, and a shorter last super-block; the most
# columns.
SHAPES = [(16, 32), (16 * 19, 32 * 5), (16, 32 * 512)]


def inputs(rows: int, outputs: int, columns: int) -> tuple[Array, tuple[Array, ...]]:
    rng = np.random.default_rng(columns)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    return x, sample_matrix(rng, SKETCH, outputs, columns)


def product(kernels: Kernels, x: Array, sketch: tuple[Array, ...]) -> Array:
    out = np.full((len(x), sketch[0].shape[0] * 16), np.nan, np.float32)
    return kernels("linear_sketch", (x, *sketch), out)


def rounded(x: Array) -> Array:
    """To 127 steps of the largest magnitude of 128 columns, f64."""
    values = x.astype(np.float64)
    for start in range(0, x.shape[1], 128):
        group = values[:, start : start + 128]
        step = np.abs(group).max(axis=1, keepdims=True) / 127
        values[:, start : start + 128] = np.rint(group / step) * step
    return values


@pytest.mark.parametrize("shape", SHAPES)
def test_a_sketch_is_multiplied(kernels: Kernels, shape: tuple[int, int]) -> None:
    x, sketch = inputs(3, *shape)
    expected = rounded(x) @ real_weights(sketch, SKETCH).astype(np.float64).T
    bound = 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(product(kernels, x, sketch), expected, rtol=0, atol=bound)
    np.testing.assert_allclose(
        linear_sketch.evaluate((x, *sketch), {}), expected, rtol=0, atol=bound
    )


def test_every_instruction_set_gives_the_same_bits(built: BuiltKernels) -> None:
    x, sketch = inputs(3, 32, 32 * 65)
    first, *others = (product(kernels, x, sketch) for kernels in built.values())
    assert all(np.array_equal(first, other) for other in others)


def test_a_row_has_the_same_bits_in_every_batch(kernels: Kernels) -> None:
    x, sketch = inputs(35, 48, 32 * 6)
    together = product(kernels, x, sketch)
    for i in (0, 31, 34):
        assert np.array_equal(product(kernels, x[i : i + 1].copy(), sketch)[0], together[i])


def test_rows_of_more_columns_are_rejected() -> None:
    x, sketch = inputs(1, 16, 32 * 513)
    types = [TensorType(array.shape, DType.of(array.dtype)) for array in (x, *sketch)]
    with pytest.raises(Unsupported, match="at most 16384 columns"):
        linear_sketch.infer(tuple(types), {})
