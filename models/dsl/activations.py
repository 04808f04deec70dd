"""How the kernels of products with integers round activations, each group of columns by its scale.

To 16 bits: two int8, the second the remainder of the first. To 12 bits beside
weights of 4. Or to 8 bits, with the attribute `activation_bits`: half the products of integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.matrix_format import GROUP
from hearthd.models.dsl.ops.record import require
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.matrix_format import MatrixFormat
    from hearthd.models.dsl.ops.record import Attrs

_BITS = (16, 8)
# The steps of a second int8 that are one of the first: both have sixteen bits.
STEPS = 254
# The smallest largest magnitude of a group of activations: 127 divided by it is finite.
_TINY = 2.0**-100


def require_rows(x: TensorType) -> None:
    """Raise TypeRuleError for activations that the kernels of products do not take."""
    require(x.dtype in (DType.F32, DType.F64) and x.rank == 2, "rows f32 (M, K)")


def require_bits(attrs: Attrs) -> None:
    """Raise TypeRuleError for bits of activations that the kernels of products do not have."""
    require(bits_of(attrs) in _BITS, f"activation_bits of {_BITS}")


def bits_of(attrs: Attrs) -> int:
    """The bits of activations, by the attributes of a product."""
    bits: int = attrs.get("activation_bits", 16)
    return bits


def steps(matrix_format: MatrixFormat, activation_bits: int) -> int:
    """The steps of the second int8 of activations that equal one step of the first; 1 without one.

    Activations beside weights of 4 bits have 12 bits, because 16 times such a weight fits into a
    byte.
    """
    if activation_bits == 8:
        return 1
    return 16 if matrix_format.operand_bits == 4 else STEPS


def rounded(x: Tensor, steps: int, *, group: int = GROUP) -> Tensor:
    """x (M, K) as the kernels read it: f32 values that a scale per `group` columns and int8 hold.

    Unless `steps` is 1, a second int8 holds the remainder, in units of 1 / `steps` of the first:
    254 steps give sixteen bits.
    """
    groups = ops.reshape(x, shape=(x.shape[0], x.shape[1] // group, group))
    largest = ops.reduce_max(ops.absolute(groups), axes=(2,))
    largest = ops.maximum(largest, ops.full_like(largest, _TINY))
    scaled = groups * f.along_axes(127.0 / largest, groups, (2,))
    integers = ops.round_(scaled)
    if steps > 1:
        integers = integers + ops.round_((scaled - integers) * float(steps)) * (1 / steps)
    values = integers * f.along_axes(largest * (1 / 127), groups, (2,))
    return ops.reshape(values, shape=x.shape)
