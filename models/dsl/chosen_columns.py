"""Recurrences that read some columns of a convolution's result, and of some rows of products."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.ops.record import require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import numpy as np

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

Range: TypeAlias = "tuple[int, int]"

_LANES = 16  # as the kernels have them


def chosen(
    parts: Sequence[Tensor], columns: Sequence[Range], rows: Range, of_result: int
) -> list[Tensor]:
    """The columns of each part; of `rows` alone, but for the first `of_result` parts."""
    some = (*parts[:of_result], *(f.narrow(part, 0, *rows) for part in parts[of_result:]))
    return [f.narrow(part, 1, *each) for part, each in zip(some, columns, strict=True)]


def places(parts: Types, attrs: Attrs, of_result: int) -> list[int]:
    """For each part, the element where its columns begin, and the values of a row."""
    numbers = []
    for i, (part, columns) in enumerate(zip(parts, attrs["columns"], strict=True)):
        stride = part.shape[1]
        row = attrs["rows"][0] if i >= of_result else 0
        numbers += [row * stride + columns[0], stride]
    return numbers


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
    require(values // heads % _LANES == 0, f"values of a multiple of {_LANES}")


def padded_parts(
    rng: np.random.Generator, tokens: int, widths: Sequence[int], of_result: int, padding: int
) -> tuple[list[Array], dict[str, Any]]:
    """Parts with `padding` more columns on each side, and more rows before, of those of products.

    Also the attributes that choose the columns and the rows.
    """
    extents = [tokens + padding * (i >= of_result) for i in range(len(widths))]
    parts = [
        normal(rng, rows, width + 2 * padding) for rows, width in zip(extents, widths, strict=True)
    ]
    columns = tuple((padding, padding + width) for width in widths)
    return parts, {"columns": columns, "rows": (padding, padding + tokens)}
