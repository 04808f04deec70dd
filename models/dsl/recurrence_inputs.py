"""What the fused ops of recurrences share: their inputs, kernels and samples.

The inputs are columns of three results of a convolution (query, key and value), and some rows and
columns of two results of products, such as gates.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal, positive
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Attrs, Types

Range: TypeAlias = "tuple[int, int]"

LANES = 16  # as the kernels have them
# Inputs that a convolution computes; the others are results of products.
_CONVOLVED = 3
# The inputs that have columns, among all inputs.
COLUMN_INPUTS = slice(2, 7)


def of_columns(
    function: Callable[..., Tensor], *, convolved: int = _CONVOLVED
) -> Callable[..., Tensor]:
    """A recurrence that reads some columns and rows of its inputs, by two further attributes.

    columns  a range of columns for each of COLUMN_INPUTS
    rows     the range of rows of COLUMN_INPUTS after the first `convolved` ones
    """

    def of_selected(
        *tensors: Tensor, columns: Sequence[Range], rows: Range, **attrs: Any
    ) -> Tensor:
        first, last = COLUMN_INPUTS.start, COLUMN_INPUTS.stop
        products = (f.narrow(x, 0, *rows) for x in tensors[first + convolved : last])
        read = (*tensors[first : first + convolved], *products)
        inputs = (f.narrow(x, 1, *each) for x, each in zip(read, columns, strict=True))
        return function(*tensors[:first], *inputs, *tensors[last:], **attrs)

    parameters = inspect.signature(function).parameters.values()
    further = (inspect.Parameter(x, inspect.Parameter.KEYWORD_ONLY) for x in ("columns", "rows"))
    selecting: Any = functools.update_wrapper(of_selected, function)
    # An op takes the arguments in the signature of its function.
    selecting.__signature__ = inspect.Signature([*parameters, *further])
    result: Callable[..., Tensor] = selecting
    return result


def limit_states(types: Types, attrs: Attrs, heads: int) -> None:
    """Raise TypeRuleError unless states and positions fit queries, keys and values of heads.

    states (ring + X, H * K * V), positions (2,), queries and keys (T, G * K), values (T, H * V)
    """
    states, positions, query, key, value, *_ = types
    keys, key_columns, values, *_ = (stop - start for start, stop in attrs["columns"])
    tokens, ring, groups = value.shape[0], attrs["ring"], attrs["groups"]
    require(value.dtype in (DType.F32, DType.F64), "floats")
    require(positions == TensorType((2,), DType.I32), "positions i32 (2,)")
    require(
        query.shape[0] == key.shape[0] == tokens == attrs["rows"][1] - attrs["rows"][0]
        and keys == key_columns
        and keys % groups == heads % groups == values % heads == 0,
        "queries and keys (T, G * K), values (T, H * V), H a multiple of G",
    )
    require(
        states.shape[1] == keys // groups * values
        and (states.shape[0] - ring) * states.shape[1] >= tokens * values
        and ring > (tokens if attrs["every"] else 1),
        "a ring of states (H * K * V,), with room for the outputs behind it",
    )
    require(values // heads % LANES == 0, f"values of a multiple of {LANES}")


def recurrence_kernel(function: str, types: Types, attrs: Attrs, *flags: bool) -> Kernel:
    """The kernel of a recurrence; `flags` follow the shared ones."""
    (heads,), groups = types[-1].shape, attrs["groups"]
    tensors = types[COLUMN_INPUTS]
    keys, _, values, *_ = (stop - start for start, stop in attrs["columns"])
    sizes = (tensors[2].shape[0], heads, groups, keys // groups, values // heads, attrs["ring"])
    return Kernel(
        function=function,
        sizes=(*sizes, *map(int, (attrs["every"], *flags)), *offsets_and_strides(tensors, attrs)),
        workgroups=heads,
        in_place=True,
    )


def offsets_and_strides(tensors: Types, attrs: Attrs, *, convolved: int = _CONVOLVED) -> list[int]:
    """The offset of the first element that is read of each tensor, and the values of its rows.

    The first `convolved` tensors have no other rows.
    """
    numbers = []
    for i, (tensor, (start, _)) in enumerate(zip(tensors, attrs["columns"], strict=True)):
        stride = tensor.shape[1]
        row = attrs["rows"][0] if i >= convolved else 0
        numbers += [row * stride + start, stride]
    return numbers


def recurrence_sample(
    rng: np.random.Generator,
    first: int,
    shape: tuple[int, ...],
    product_widths: tuple[int, ...],
    *,
    ring: int,
    every: bool,
    padding: int,
) -> Sample:
    """A sample of T tokens, G groups, H heads, and keys and values of some widths (`shape`).

    Tensors have `padding` more columns on each side, and results of products more rows before.
    """
    tokens, groups, heads, keys, width = shape
    widths = (groups * keys, groups * keys, heads * width, *product_widths)
    tensors = [
        normal(rng, tokens + padding * (i >= _CONVOLVED), columns + 2 * padding)
        for i, columns in enumerate(widths)
    ]
    positions = np.array([first, first + tokens - 1], np.int32)
    states = normal(rng, ring + 1, heads * keys * width)
    attrs: dict[str, Any] = {
        "columns": tuple((padding, padding + columns) for columns in widths),
        "rows": (padding, padding + tokens),
        "ring": ring,
        "every": every,
        "groups": groups,
    }
    return Sample((states, positions, *tensors, normal(rng, heads), -positive(rng, heads)), attrs)
