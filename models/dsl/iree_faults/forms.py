"""Faults that a tensor does not meet in another form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl.ops.elementwise import barrier
from hearthd.models.dsl.ops.shape import broadcast, reshape
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.types import TensorType

_MAX_WIDTH = 768  # values of a row that a dispatch keeps


def packed_booleans(tensor_type: TensorType) -> TensorType:
    """The type in which a function is given a tensor: booleans come as bytes.

    The compiler packs what a product is combined with, and fails when that is of i1.
    """
    return tensor_type.with_dtype(DType.I8) if tensor_type.dtype is DType.BOOL else tensor_type


def concurrent_copies(row: Tensor) -> Tensor:
    """A row (1, K) twice: (2, K).

    As a broadcast. Of a concatenation the compiler copies rows in and out at the same time.
    """
    return broadcast(reshape(row, shape=row.shape[1:]), shape=(2, row.shape[1]), axes=(1,))


def wide_rows(tensor: Tensor, width: int) -> Tensor:
    """The input of a norm of rows of `width` values, or the means of its rows.

    Wide rows get a barrier: without it, the compiler keeps up to 40 rows on the stack of a dispatch
    that also computes them, or that reads them again after their mean.
    """
    return barrier(tensor) if width > _MAX_WIDTH else tensor
