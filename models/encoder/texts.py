"""Whole texts that an encoder reads: each token sees those before it and those after it.

`B` texts of `T` tokens, one after the other; `N` is B * T, `E` the hidden width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.alibi import alibi_slopes
from hearthd.models.decoder.whole_sequences import WholeSequences
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Texts:
    """The tokens of texts, each padded to the same length.

    tokens  i32 (N,)
    types   i32 (N,): of a pair of texts, 0 for tokens of the first one and 1 for the second
    counts  i32 (B,): tokens of each text, at least 1; the others are padding
    """

    tokens: Tensor
    types: Tensor
    counts: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """B and T."""
        batch = self.counts.shape[0]
        return batch, self.tokens.shape[0] // batch

    @property
    def positions(self) -> Tensor:
        """The position of each token in its text, i32 (N,)."""
        return f.flatten(ops.iota(shape=self.shape, axis=1, dtype=DType.I32))

    def layer(self, window: int | None = None, added: Tensor | None = None) -> LayerCache:
        """The tokens that a layer attends to: those less than `window` positions away, or all.

        added  is added to the scores: f32 (1, H, T, T)
        """
        return _BothDirections(self, window, added)

    def alibi(self, heads: int) -> Tensor:
        """What scores lose with the distance of tokens (Press et al., 2021): f32 (1, H, T, T)."""
        _, length = self.shape
        shape = (1, heads, length, length)
        slopes = ops.constant(value=alibi_slopes(heads))
        distance = ops.convert(_distance(shape), dtype=DType.F32)
        # Fused into each layer's softmax, it would need a stack of 3 MB for texts of 2048 tokens.
        return ops.barrier(-distance * ops.broadcast(slopes, shape=shape, axes=(1,)))

    def pooled(self, x: Tensor, pooling: str) -> Tensor:
        """Hidden states (N, E) -> a vector of each text (B, E).

        It is their mean, the first of them (`cls`) or the last of them.
        """
        batch, length = self.shape
        states = ops.reshape(x, shape=(batch, length, x.shape[1]))
        if pooling == "cls":
            return f.flatten(f.narrow(states, 1, 0, 1), first=1)
        position = ops.iota(shape=states.shape, axis=1, dtype=DType.I32)
        count = ops.broadcast(self.counts, shape=states.shape, axes=(0,))
        chosen = ops.compare(position, count, direction="LT")
        if pooling == "last":
            chosen = ops.compare(position, count + -1, direction="EQ")
        total = ops.reduce_sum(ops.select(chosen, states, ops.full_like(states, 0.0)), axes=(1,))
        if pooling == "last":
            return total
        return total / ops.broadcast(
            ops.convert(self.counts, dtype=x.dtype), shape=total.shape, axes=(0,)
        )


def both_sides(windows: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """`Texts.layer`'s windows for windows that are centered at a token."""
    return tuple(window and window // 2 + 1 for window in windows)


class _BothDirections(WholeSequences):
    """A layer whose tokens see all tokens of their text, but no padding."""

    def __init__(self, texts: Texts, window: int | None, added: Tensor | None) -> None:
        batch, length = texts.shape
        super().__init__(sequences=batch, length=length, window=window, added=added)
        self._counts = texts.counts

    @override
    def seen(self) -> Tensor:
        """The tokens that each token sees: bool (B, 1, T, T)."""
        shape = (self._counts.shape[0], 1, self.keys, self.keys)
        key = ops.iota(shape=shape, axis=3, dtype=DType.I32)
        count = ops.broadcast(self._counts, shape=shape, axes=(0,))
        seen = ops.compare(key, count, direction="LT")
        if self.window is None:
            return seen
        distance = _distance(shape)
        window = ops.full_like(distance, self.window)
        return ops.logical_and(seen, ops.compare(distance, window, direction="LT"))


def _distance(shape: tuple[int, int, int, int]) -> Tensor:
    """The positions between a query, along the third axis, and a key, along the fourth: i32."""
    query = ops.iota(shape=shape, axis=2, dtype=DType.I32)
    key = ops.iota(shape=shape, axis=3, dtype=DType.I32)
    return ops.maximum(query, key) - ops.minimum(query, key)
