"""Calls that the DSL refuses. Each message names the function, what it expects and what it got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.graph import Input, Tensor
from hearthd.models.dsl.types import DType, TensorType, TypeRuleError

if TYPE_CHECKING:
    from collections.abc import Callable


TEXT: Any = "a"
NUMBER: Any = 2.0


def x(*shape: int, dtype: DType = DType.F32) -> Tensor:
    return Tensor(TensorType(shape, dtype), Input("x"))


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "rope": (
        lambda: f.rope(x(2, 3, 5), x(2, 3), x(2, 3)),
        r"rope\(.* a table of at most D / 2 columns, got f32",
    ),
    "rope_table": (
        lambda: f.rope_table(x(3, dtype=DType.I32), 7, base=1e4),
        "rope_table: expected an even head_dim, got 7",
    ),
    "rope_table_width": (
        lambda: f.rope_table(x(3, dtype=DType.I32), 2**31 - 2, base=1e4),
        "rope_table: expected a head_dim of at most 8192, got 2147483646$",
    ),
    "constant": (
        lambda: ops.constant(value=np.arange(5000)),
        r"constant\(value=array\([^\n]*\): expected at most 4096 elements, got 5000: make it a par",
    ),
    "group_norm": (
        lambda: f.group_norm(x(2, 3, 4), groups=2, eps=1e-3),
        "group_norm: expected groups that divide the 3 channels, got 2",
    ),
    "group_norm_rank": (lambda: f.group_norm(x(2), groups=1, eps=1e-3), r"group_norm: .* \(N, C, "),
    "pool_padding": (
        lambda: f.max_pool2d(x(4, 4), 2, padding=2),
        "max_pool2d: expected padding of 0 to half the window's size 2, got 2",
    ),
    "pool_size": (lambda: f.max_pool2d(x(4, 4), 0), "max_pool2d: expected size, .* got 0, 0 and 1"),
    "pool_stride": (lambda: f.max_pool2d(x(4, 4), 2, stride=0), "max_pool2d: .* got 2, 0 and 1"),
    "pool_window": (lambda: f.max_pool2d(x(4, 4), 6), "max_pool2d: .* at least 6 x 6, got"),
    "avg_pool_padding": (
        lambda: f.avg_pool2d(x(4, 4), 3, padding=2),
        "avg_pool2d: expected padding of 0 to half the window's size 3, got 2",
    ),
    "upsample": (
        lambda: f.upsample2d_nearest(x(4, 4), 0),
        "upsample2d_nearest: expected a scale of at least 1, got 0",
    ),
    "bilinear": (
        lambda: f.upsample2d_bilinear(x(4, 4), 0),
        "upsample2d_bilinear: expected a scale of at least 1, got 0",
    ),
    "stride": (
        lambda: f.convolution(x(1, 1, 4), x(1, 1, 2), stride=0),
        "convolution: expected a stride of at least 1 for each of 1 axes, got 0",
    ),
    "stride_per_axis": (
        lambda: f.convolution(x(1, 1, 4, 4), x(1, 1, 2, 2), stride=(1,)),
        r"convolution: expected a stride of at least 1 for each of 2 axes, got \(1,\)",
    ),
    "transposed_stride": (
        lambda: f.transposed_convolution(x(1, 1, 4), x(1, 1, 2), stride=0),
        "transposed_convolution: expected a stride of at least 1 for each of 1 axes, got 0",
    ),
    "transposed_channels": (
        lambda: f.transposed_convolution(x(1, 2, 4), x(3, 1, 2)),
        "transposed_convolution: expected .* a multiple of 1 groups",
    ),
    "transposed_padding": (
        lambda: f.transposed_convolution(x(1, 1, 4), x(1, 1, 2), padding=3),
        "transposed_convolution: expected padding that leaves an element of axis 2, got 3 of 5",
    ),
    "output_padding": (
        lambda: f.transposed_convolution(x(1, 1, 4), x(1, 1, 2), stride=2, output_padding=2),
        "transposed_convolution: expected an output_padding below the stride or the dilation",
    ),
    "chunk": (lambda: f.chunk(x(4), 0, axis=0), "chunk: expected at least 1 part, got 0"),
    "unfold": (
        lambda: f.unfold(x(4), axis=0, size=2, step=0),
        "unfold: expected a size and a step of at least 1, got 2, 0",
    ),
    "split": (lambda: f.split(x(4), [2, 2], axis=5), "expected an axis from -1 to 0, got 5"),
    "split_sizes": (
        lambda: f.split(x(4), [5, -1], axis=0),
        r"split: expected sizes of at least 1, got \[5, -1\]",
    ),
    "flatten": (lambda: f.flatten(x(2, 3), first=1, last=0), "flatten: expected first <= last"),
    "variance": (
        lambda: f.variance(x(1), correction=1),
        "variance: got 1 elements, expected more than 1",
    ),
    "attention": (
        lambda: f.scaled_dot_product_attention(x(2, 3, 4), x(2, 3, 4), x(2, 3, 4)),
        r"attention: expected query of rank 4, got f32\[2, 3, 4\]",
    ),
    "linear": (lambda: f.linear(x(), x(2, 2)), r"times_weight\(.*: expected x \(..., K\)"),
    "fraction": (
        lambda: x(2, dtype=DType.I32) * 1.5,
        r"i32\[2\] \* 1.5: 1.5 is not a value of i32; convert first",
    ),
    "range": (
        lambda: 300 - x(2, dtype=DType.I8),
        r"300 - i8\[2\]: 300 is not a value of i8; convert first",
    ),
    "text": (lambda: x(2) + TEXT, r"f32\[2\] \+ 'a': expected a tensor or a number"),
    "no_matrix": (lambda: x(2) @ NUMBER, "matmul: expected two tensors, got 2.0"),
    "matrix_of_rank_0": (lambda: x() @ x(2), r"matmul: expected at least one axis, got f32\[\]"),
    "index": (lambda: x(2, 3)[1, -4], r"f32\[2, 3\]\[1, -4\]: expected an index from -3 to 2 for"),
    "indices": (lambda: x(2)[0, None, 0], r"\[0, None, 0\]: expected at most 1 indices, got 2"),
    "slice": (lambda: x(4)[3:1], r"f32\[4\]\[3:1\]: axis 0 of extent 4 has no element in the"),
    "negative_step": (lambda: x(4)[::-1], r"f32\[4\]\[::-1\]: expected a positive step, got -1"),
    "ellipses": (lambda: x(4)[..., ...], "expected at most one `...`"),
    "index_list": (lambda: x(4)[[0, 1]], r"\[0, 1\]; gather takes slices at computed indices"),
    "boolean_index": (lambda: x(4)[True], "expected integers, slices, None or `...`, got True"),
    "tensor_index": (lambda: x(4)[x(2, dtype=DType.I32)], "got <input x: i32.*; gather takes"),
    "narrow_sum": (
        lambda: ops.dot_general(
            x(2, 3, dtype=DType.BF16), x(3, dtype=DType.BF16), batch=((), ()),
            contract=((1,), (0,)), dtype=DType.BF16,
        ),
        "has 4 bytes at least",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_the_message_names_function_and_values(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(TypeRuleError, match=message):
        make()
