"""Products with matrices of integers in NumPy: those with the dequantized matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.fused.quantized_products import sample_matrix
from hearthd.models.dsl.matrix_format import STORED
from hearthd.models.dsl.matrix_values import dequantized, quantized_product
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.matrix_format import MatrixFormat


@pytest.mark.parametrize("form", STORED, ids=lambda form: form.name)
def test_a_product_is_that_with_the_dequantized_matrix(form: MatrixFormat) -> None:
    rng = np.random.default_rng(0)
    x, stored = rng.normal(size=(3, 512)).astype(np.float32), sample_matrix(rng, form, 32, 512)
    types = {f"x{i}": TensorType(a.shape, DType.of(a.dtype)) for i, a in enumerate(stored)}
    graph = trace("values", lambda *arrays: (dequantized(arrays, form),), types)
    (weight,) = evaluate(graph, stored, {})
    product = quantized_product.op.evaluate((x, *stored), {"matrix_format": form.name})
    tolerance = 1e-6 * np.abs(x) @ np.abs(weight).T
    assert (np.abs(product - x.astype(np.float64) @ weight.T) <= tolerance).all()
