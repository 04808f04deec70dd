"""Whole sequences that are read at once, as in training: nothing is cached.

`B` sequences of `L` tokens, one after the other; `H` query heads, `G` key/value heads, `D` the
width of a head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.kv_cache import LayerCache, Span
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.kv_cache import StateRows, Step
    from hearthd.models.dsl.graph import Tensor


class WholeSequences(LayerCache):
    """A layer whose tokens see those before them in their sequence, each from position 0.

    All sequences are one product, and no token is copied into a buffer.

    added  is added to the scores, broadcast to (B, H, L, L) from the end
    """

    def __init__(
        self, *, sequences: int, length: int, window: int | None, added: Tensor | None = None
    ) -> None:
        super().__init__(buffers=[], starts=[], keys=length, window=window)
        self._added = added
        self._sequences = sequences
        self._shared: tuple[Tensor, Tensor] | None = None

    @override
    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Attention: query (B * L, H, D), key and value (B * L, G, D) -> (B * L, H * D)."""
        self._shared = (self._batched(key), self._batched(value))
        return self._attention(query, *self._shared, scale=scale, cap=cap, sinks=sinks)

    @override
    def positions(self, _: int) -> Tensor:
        """The positions of the tokens, i32 (B * L,)."""
        sequence = ops.iota(shape=(self.keys,), axis=0, dtype=DType.I32)
        return ops.concatenate(*[sequence] * self._sequences, axis=0)

    @override
    def attend_shared(self, query: Tensor, *, scale: float) -> Tensor:
        """As `attend`, over the keys and values of another layer."""
        assert self._shared is not None, "no layer has given keys and values"
        return self._attention(query, *self._shared, scale=scale, cap=None)

    def _attention(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        scale: float,
        cap: float | None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        mixed = f.scaled_dot_product_attention(
            self._batched(query),
            keys,
            values,
            seen=self.seen(),
            mask=self._added,
            sinks=sinks,
            scale=scale,
            cap=cap,
        )
        rows, heads, width = query.shape
        return ops.reshape(mixed, shape=(rows, heads * width))

    def seen(self) -> Tensor:
        """The tokens that each token sees: bool, broadcast to (B, H, L, L) from the end."""
        return f.causal(self.keys, self.keys, window=self.window)

    @override
    def previous(self, x: Tensor, count: int) -> list[Tensor]:
        """x (B * L, E) of the tokens 1, 2, ... `count` positions before, 0 before the first."""
        batched = self._batched(x)
        shifted = (
            ops.concatenate(
                ops.full_like(f.narrow(batched, 1, 0, steps), 0.0),
                f.narrow(batched, 1, 0, self.keys - steps),
                axis=1,
            )
            for steps in range(1, count + 1)
        )
        return [ops.reshape(copy, shape=x.shape) for copy in shifted]

    @override
    def recur(self, rows: Sequence[Tensor], states: Sequence[StateRows], step: Step) -> Tensor:
        """The outputs of a recurrence for the tokens; each of `rows` is (B * L, ...)."""
        start = ops.full(shape=(1,), dtype=DType.I32, value=0)
        span = Span(start=start, kept=start + (self.keys - 1), every=False, ring=2)
        buffers = tuple(
            ops.full(
                shape=(span.ring + state.behind(self.keys), state.width),
                dtype=rows[0].dtype,
                value=0.0,
            )
            for state in states
        )
        outputs = []
        for first in range(0, self._sequences * self.keys, self.keys):
            new = [f.narrow(x, 0, first, first + self.keys) for x in rows]
            outputs.append(step(new, buffers, span)[0])
        return ops.concatenate(*outputs, axis=0)

    def _batched(self, x: Tensor) -> Tensor:
        return ops.reshape(x, shape=(self._sequences, self.keys, *x.shape[1:]))
