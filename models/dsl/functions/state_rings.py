"""Rings of states of recurrences, and recurrences of several tokens as products of matrices.

`T` is tokens, `C` tokens of a chunk, `H` heads, `K` the width of a key, `V` of a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.shapes import (
    along_axes,
    at,
    flatten,
    narrow,
    permute,
    trailing,
)
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor

    # (rows of C tokens, ..., the state before them) -> their outputs (C, H, V), the state after
    Chunk: TypeAlias = Callable[..., tuple[Tensor, Tensor]]

__all__ = ["recurrence_outputs", "row_before"]

CHUNK = 64  # tokens that are computed together by products of matrices


def recurrence(
    states: Tensor,
    positions: Tensor,
    rows: Sequence[Tensor],
    chunk: Chunk,
    *,
    shape: tuple[int, ...],
    ring: int,
    every: bool,
) -> Tensor:
    """A ring of states, updated by new tokens, and their outputs: see `recurrence_outputs`.

    states (ring + X, E): the state, of E values in this `shape`, after position p is row p mod
    `ring`; zeros before position 0. positions i32 (2,): of the first token, and of the last one
    that counts. Each of `rows` is (T, ...). The state is written after each token if `every`, else
    after the last one that counts. The outputs (T, H, V) are at the start of the X rows. `chunk`
    reads CHUNK tokens at a time, or each alone.
    """
    tokens, size = rows[0].shape[0], 1 if every else CHUNK
    first, last = narrow(positions, 0, 0, 1), narrow(positions, 0, 1, 2)
    width, ring_rows = states.shape[1], ops.full_like(first, ring)
    state = ops.reshape(row_before(states, first, ring=ring), shape=shape)
    outputs, after = [], []
    for start in range(0, tokens, size):
        stop = min(start + size, tokens)
        output, state = chunk(*(narrow(x, 0, start, stop) for x in rows), state)
        outputs.append(flatten(output))
        after.append(ops.reshape(state, shape=(1, width)))
    places = [ops.remainder(first + ahead, ring_rows) for ahead in range(tokens)] if every else []
    places = places or [ops.remainder(last, ring_rows)]
    kept = ops.concatenate(*after[-len(places) :], axis=0)
    places_tensor = ops.concatenate(*places, axis=0)
    updated = ops.scatter(states, places_tensor, kept, combine="replace")
    behind = flatten(narrow(states, 0, ring, states.shape[0]))
    count = sum(output.shape[0] for output in outputs)
    if count < behind.shape[0]:
        outputs.append(narrow(behind, 0, count, behind.shape[0]))
    behind = ops.concatenate(*outputs, axis=0)
    behind = ops.reshape(behind, shape=(states.shape[0] - ring, width))
    return ops.concatenate(narrow(updated, 0, 0, ring), behind, axis=0)


@composite()
def row_before(states: Tensor, position: Tensor, *, ring: int) -> Tensor:
    """The ring's row (1, E) of the position before `position`, i32 (1,); zeros at position 0."""
    place = ops.remainder(position + (ring - 1), ops.full_like(position, ring))
    row = ops.gather(states, place, axis=0)
    exists = ops.compare(position, ops.full_like(position, 0), direction="GT")
    exists = ops.broadcast(exists, shape=row.shape, axes=(0,))
    return ops.select(exists, row, ops.full_like(row, 0.0))


def counted(x: Tensor, positions: Tensor) -> Tensor:
    """x (T, H), with 0 for tokens after the last one that counts: see `recurrence`."""
    index = ops.iota(shape=(x.shape[0],), axis=0, dtype=DType.I32)
    last = narrow(positions, 0, 1, 2) - narrow(positions, 0, 0, 1)
    counts = ops.compare(index, trailing(last, index.shape), direction="LE")
    return x * along_axes(ops.convert(counts, dtype=x.dtype), x, (1,))


def recurrence_outputs(states: Tensor, value: Tensor, *, ring: int) -> Tensor:
    """The outputs of a recurrence, which follow the ring of states, in the shape of `value`."""
    behind = flatten(narrow(states, 0, ring, states.shape[0]))
    return ops.reshape(narrow(behind, 0, 0, value.type.size), shape=value.shape)


def sums_until(log_decay: Tensor) -> Tensor:
    """(H, C) -> the sums up to each token, itself included: (H, C)."""
    return ops.dot_general(
        log_decay, constant(np.tri(log_decay.shape[1]), log_decay),
        batch=((), ()), contract=((1,), (1,)), dtype=log_decay.dtype,
    )  # fmt: skip


def decay_between(until: Tensor) -> Tensor:
    """exp(G_i - G_j) for the sums G (H, C), at most 1: (H, C, C)."""
    count = until.shape[1]
    square = ops.full(shape=(until.shape[0], count, count), dtype=until.dtype, value=0.0)
    between = along_axes(until, square, (2,)) - along_axes(until, square, (1,))
    return ops.exponential(ops.minimum(between, square))


def learned_state(state: Tensor, key: Tensor, value: Tensor, until: Tensor) -> Tensor:
    """exp(G_C) S + (exp(G_C - G) key)^T value, for keys (H, C, K) and values (H, C, V)."""
    total = at(permute(until, 1, 0), until.shape[1] - 1)
    remaining = ops.exponential(along_axes(total, until, (1,)) - until)
    added = ops.dot_general(
        scaled(key, remaining), value,
        batch=((0,), (0,)), contract=((1,), (1,)), dtype=state.dtype,
    )  # fmt: skip
    return state * along_axes(ops.exponential(total), state, (1, 2)) + added


def scaled(x: Tensor, factors: Tensor) -> Tensor:
    """The rows of x (H, C, K) times factors (H, C)."""
    return x * along_axes(factors, x, (2,))


def times_transposed(x: Tensor, y: Tensor) -> Tensor:
    """x y^T for (H, C, K): (H, C, C)."""
    return ops.dot_general(x, y, batch=((0,), (0,)), contract=((2,), (2,)), dtype=x.dtype)


def mask(values: NDArray[np.generic], like: Tensor) -> Tensor:
    """Numbers (C, C) for each head of a tensor (H, C, C)."""
    return along_axes(constant(values, like), like, (0,))


def constant(values: NDArray[np.generic], like: Tensor) -> Tensor:
    """Numbers in the dtype of a tensor."""
    return ops.constant(value=values.astype(like.dtype.numpy))
