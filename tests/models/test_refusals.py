"""What the DSL refuses, in a sentence that names it, where it once dropped or wrapped something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from models.dsl import functions as f
from models.dsl import ops
from models.dsl.graph import Input, Tensor
from models.dsl.types import DType, TensorType, TypeRuleError

if TYPE_CHECKING:
    from collections.abc import Callable


def x(*shape: int, dtype: DType = DType.F32) -> Tensor:
    return Tensor(TensorType(shape, dtype), Input("x"))


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "rope": (lambda: f.rope(x(2, 3, 5), x(2, 2), x(2, 2)), "an even D"),
    "rope_table": (lambda: f.rope_table(x(3, dtype=DType.I32), 7, base=1e4), "an even width"),
    "group_norm": (lambda: f.group_norm(x(2, 3, 4), groups=2, eps=1e-3), "3 channels in equal"),
    "pool_padding": (lambda: f.max_pool2d(x(4, 4), 2, padding=2), "padding of at most half of 2"),
    "pool_size": (lambda: f.max_pool2d(x(4, 4), 0), "a positive size"),
    "avg_pool": (lambda: f.avg_pool2d(x(4, 4), 3, padding=2), "padding of at most half of 3"),
    "upsample": (lambda: f.upsample2d_nearest(x(4, 4), 0), "a scale of at least 1, got 0"),
    "bilinear": (lambda: f.upsample2d_bilinear(x(4, 4), 0), "a scale of at least 1, got 0"),
    "stride": (lambda: f.convolution(x(1, 1, 4), x(1, 1, 2), stride=0), "positive strides"),
    "chunk": (lambda: f.chunk(x(4), 0, axis=0), "chunk: expected at least 1 part, got 0"),
    "unfold": (lambda: f.unfold(x(4), axis=0, size=2, step=0), "unfold: expected a size and"),
    "split": (lambda: f.split(x(4), [2, 2], axis=5), "expected an axis from -1 to 0, got 5"),
    "variance": (lambda: f.variance(x(1), correction=1), "variance: got 1 elements"),
    "attention": (
        lambda: f.scaled_dot_product_attention(x(2, 3, 4), x(2, 3, 4), x(2, 3, 4)),
        "expected query of rank 4",
    ),
    "fraction": (lambda: x(2, dtype=DType.I32) * 1.5, "a value that i32 has"),
    "range": (lambda: x(2, dtype=DType.I8) + 300, "a value that i8 has"),
    "narrow_sum": (
        lambda: ops.dot_general(
            x(2, 3, dtype=DType.BF16), x(3, dtype=DType.BF16), batch=((), ()),
            contract=((1,), (0,)), dtype=DType.BF16,
        ),
        "has 4 bytes at least",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(TypeRuleError, match=message):
        make()
