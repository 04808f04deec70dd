"""What layers keep of earlier tokens while a model is traced: rings of rows.

The row of a position has its keys and values, or the state of a recurrence after its token.

`N` is sequences x tokens, `H` query heads, `G` key/value heads, `D` the width of a head, `R` the
rows of a cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.models.dsl.graph import Tensor

    # (rows of n new tokens of a sequence, its buffers, span) -> the outputs (n, E), and the buffers
    # with the states after the tokens that the span keeps
    Step: TypeAlias = Callable[
        [Sequence[Tensor], tuple[Tensor, ...], "Span"], tuple[Tensor, tuple[Tensor, ...]]
    ]


def cache_rows(window: int | None, *, context: int, chunk: int) -> int:
    """R of a layer whose tokens see `window` keys, or all keys of the context.

    One chunk more than are seen, so that the padding of a chunk never lands on a row that a token
    can still see.
    """
    return (context if window is None else min(window, context)) + chunk


class StateRows(NamedTuple):
    """A state that a layer keeps of a sequence.

    width    E: a ring has rows f32 (E,)
    outputs  values that a call leaves behind the ring, for each new token
    """

    width: int
    outputs: int = 0

    def behind(self, tokens: int) -> int:
        """The rows behind the ring, for the outputs of a number of tokens."""
        return -(-tokens * self.outputs // self.width)


@dataclass(frozen=True, kw_only=True)
class Span:
    """New tokens of a sequence that a recurrence reads.

    start  the position of the first one, i32 (1,)
    kept   i32 (M,): the tokens after which the state is kept, counted from the first new one
    every  whether they are all tokens
    ring   R, the rows of a ring of states
    """

    start: Tensor
    kept: Tensor
    every: bool
    ring: int

    def before(self, states: Tensor) -> Tensor:
        """The row (1, E) of the position before the first token; zeros if there is none."""
        return f.row_before(states, self.start, ring=self.ring)

    def written(self, states: Tensor, after: Tensor) -> Tensor:
        """A ring of states (R, E) with those after the tokens that are kept, (M, E)."""
        positions = f.trailing(self.start, self.kept.shape) + self.kept
        places = ops.remainder(positions, ops.full_like(positions, self.ring))
        return ops.scatter(states, places, after, combine="replace")

    @property
    def positions(self) -> Tensor:
        """The positions of the first token and of the last one that is kept, i32 (2,)."""
        count = self.kept.shape[0]
        last = self.start + f.narrow(self.kept, 0, count - 1, count)
        return ops.concatenate(self.start, last, axis=0)


def span_positions(starts: list[Tensor], count: int) -> Tensor:
    """The positions of spans of `count` tokens, by their starts i32 (1,): i32 (spans * count,)."""
    return ops.concatenate(*(f.consecutive(start, count) for start in starts), axis=0)


@dataclass(kw_only=True)
class LayerCache:
    """Keys and values of one layer, and the new tokens that are read in this call.

    buffers  keys and values of each sequence, each f16 or f32 (R, G * D): position p lies in row
             p mod R. Or i8 (R, G * D), then the scales of keys and of values, each f32 (R, G). Or
             i8 of 6 and of 4 bits, see `f.int4_cache_attention`, then the scales, each f16
             (R, G * D / 32). Or the states of a recurrence, each f32 (R, E): that after position p
             is row p mod R
    starts   the position of each span's first token, i32 (1,): a sequence has one span of new
             tokens, or several of one token that follow each other, and each token has the bits
             that it has without the others
    keys     all positions are below it
    window   keys that a token sees, itself included; None for all of them
    count    the tokens of the only span that are not padding, i32 (1,), of a recurrence; None: all
    block    i32 (2,): the first position of the only span, and the end of its tokens that see each
             other. None: a token sees no later one
    """

    buffers: list[tuple[Tensor, ...]]
    starts: list[Tensor]
    keys: int
    window: int | None
    count: Tensor | None = None
    block: Tensor | None = None

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
        """Attention of the new tokens over each sequence's cache, into which they go first.

        query (N, H, D), key and value (N, G, D), span after span -> (N, H * D). Replaces `buffers`
        by the updated ones, which take the same storage once compiled. For `cap` and `sinks` see
        `f.cached_attention`.
        """
        tokens, spans = self._shape(query.shape[0])
        places = _ring_rows(self.starts, tokens, self.buffers[0][0].shape[0])
        mixed: list[Tensor] = []
        query = self._rotated(query)
        for i, buffers in enumerate(self.buffers):
            first, end = i * spans * tokens, (i + 1) * spans * tokens
            rows, *new = (f.narrow(x, 0, first, end) for x in (places, key, value))
            self.buffers[i] = _written(buffers, rows, new)
            mixed.append(self._mixed(i, query, sinks, scale=scale, cap=cap))
        return ops.concatenate(*mixed, axis=0)

    def positions(self, rows: int) -> Tensor:
        """The positions of the new tokens, i32 (N,); `rows` is N."""
        tokens, _ = self._shape(rows)
        return span_positions(self.starts, tokens)

    def attend_shared(self, query: Tensor, *, scale: float) -> Tensor:
        """As `attend`, over the keys and values that another layer wrote in this call."""
        query = self._rotated(query)
        sequences = range(len(self.buffers))
        mixed = (self._mixed(i, query, None, scale=scale, cap=None) for i in sequences)
        return ops.concatenate(*mixed, axis=0)

    def _rotated(self, query: Tensor) -> Tensor:
        """The query as attention over these buffers takes it: rotated if they are of 4 bits."""
        is_packed = self.buffers[0][-1].dtype is DType.F16 and len(self.buffers[0]) > 2
        return f.rotate_heads(query) if is_packed else query

    def _mixed(
        self,
        sequence: int,
        query: Tensor,
        sinks: Tensor | None,
        *,
        scale: float,
        cap: float | None,
    ) -> Tensor:
        """Attention of the new tokens of a sequence over its buffers, (tokens, H * D)."""
        rows, heads, width = query.shape
        tokens, spans = self._shape(rows)
        count = tokens * spans
        attended = _attention(
            f.narrow(query, 0, sequence * count, (sequence + 1) * count),
            self.buffers[sequence],
            self.starts[sequence * spans] if self.block is None else self.block,
            sinks,
            keys=self.keys,
            window=self.window,
            scale=scale,
            cap=cap,
            alone=spans > 1,
        )
        return ops.reshape(attended, shape=(count, heads * width))

    def recur(self, rows: Sequence[Tensor], _: Sequence[StateRows], step: Step) -> Tensor:
        """The outputs (N, E) of a recurrence for the new tokens; each of `rows` is (N, ...).

        Replaces `buffers`, which hold the states, by the updated ones, as `attend` does.
        """
        tokens, spans = self._shape(rows[0].shape[0])
        count, outputs = tokens * spans, []
        for i, buffers in enumerate(self.buffers):
            new = [f.narrow(x, 0, i * count, (i + 1) * count) for x in rows]
            span = self._span(self.starts[i * spans], count, every=spans > 1)
            output, self.buffers[i] = step(new, buffers, span)
            outputs.append(output)
        return ops.concatenate(*outputs, axis=0)

    def _span(self, start: Tensor, tokens: int, *, every: bool) -> Span:
        """The new tokens of a sequence."""
        # Only some buffers have outputs behind their rings.
        ring = min(buffer.shape[0] for buffer in self.buffers[0])
        index = ops.iota(shape=(tokens,), axis=0, dtype=DType.I32)
        if every or tokens == 1:
            return Span(start=start, kept=index, every=every, ring=ring)
        if self.count is None:
            kept = f.narrow(index, 0, tokens - 1, tokens)
            return Span(start=start, kept=kept, every=False, ring=ring)
        return Span(start=start, kept=self.count + -1, every=False, ring=ring)

    def _shape(self, rows: int) -> tuple[int, int]:
        """The new tokens of a span, and the spans of a sequence."""
        return rows // len(self.starts), len(self.starts) // len(self.buffers)

    def previous(self, x: Tensor, count: int) -> list[Tensor]:
        """x (N, E) of the tokens 1, 2, ... `count` positions before each token, 0 before the first.

        The buffers of a sequence hold the halves of x: (R, E / 2), R above `count`. They are
        replaced by the updated ones, as in `attend`.
        """
        half = x.shape[1] // 2
        tokens, spans = self._shape(x.shape[0])
        before: list[list[Tensor]] = [[] for _ in range(count)]
        for i, buffers in enumerate(self.buffers):
            starts = self.starts[i * spans : (i + 1) * spans]
            new = f.narrow(x, 0, i * spans * tokens, (i + 1) * spans * tokens)
            rows = buffers[0].shape[0]
            places = _ring_rows(starts, tokens, rows)
            first, second = (
                written_rows(buffer, places, f.narrow(new, 1, at, at + half))
                for buffer, at in zip(buffers, (0, half), strict=True)
            )
            self.buffers[i] = (first, second)
            for start in starts:
                for steps, parts in enumerate(before, 1):
                    positions = f.consecutive(start, tokens) + -steps
                    row = ops.remainder(positions + rows, ops.full_like(positions, rows))
                    halves = (ops.gather(ring, row, axis=0) for ring in (first, second))
                    previous = ops.convert(ops.concatenate(*halves, axis=1), dtype=x.dtype)
                    exists = ops.compare(positions, ops.full_like(positions, 0), direction="GE")
                    exists = ops.broadcast(exists, shape=previous.shape, axes=(0,))
                    parts.append(ops.select(exists, previous, ops.full_like(previous, 0.0)))
        return [ops.concatenate(*parts, axis=0) for parts in before]


def _attention(
    query: Tensor,
    buffers: tuple[Tensor, ...],
    start: Tensor,
    sinks: Tensor | None,
    **attributes: Any,
) -> Tensor:
    """Attention of the tokens of a span over the buffers of its sequence."""
    key, value, *scales = buffers
    if not scales:
        return f.cached_attention(query, key, value, start, sinks, **attributes)
    key_scale, value_scale = scales
    attend = f.int4_cache_attention if key_scale.dtype is DType.F16 else f.int8_cache_attention
    return attend(query, key, value, key_scale, value_scale, start, sinks, **attributes)


def _written(
    buffers: tuple[Tensor, ...], places: Tensor, heads: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The buffers of a sequence with new keys and values, each (N, G, D), at `places`."""
    if len(buffers) == len(heads):
        return tuple(
            written_rows(buffer, places, x) for buffer, x in zip(buffers, heads, strict=True)
        )
    integers, scales = buffers[: len(heads)], buffers[len(heads) :]
    if scales[0].dtype is DType.F16:
        packed = [*zip(heads, (f.KEY_BITS, f.VALUE_BITS), strict=True)]
        rows, factors = f.write_packed_rows, f.write_packed_scales
        return (
            *(rows(old, places, x, bits=n) for old, (x, n) in zip(integers, packed, strict=True)),
            *(factors(old, places, x, bits=n) for old, (x, n) in zip(scales, packed, strict=True)),
        )
    return (
        *(f.write_int8_rows(old, places, x) for old, x in zip(integers, heads, strict=True)),
        *(f.write_row_scales(old, places, x) for old, x in zip(scales, heads, strict=True)),
    )


def written_rows(buffer: Tensor, places: Tensor, x: Tensor) -> Tensor:
    """A buffer (R, E) with the rows x, each of E values, at `places` i32 (N,)."""
    if buffer.dtype is DType.F16:
        return f.write_f16_rows(buffer, places, x)
    rows = ops.reshape(x, shape=(x.shape[0], buffer.shape[1]))
    return ops.scatter(buffer, places, rows, combine="replace")


def _ring_rows(starts: list[Tensor], tokens: int, rows: int) -> Tensor:
    """The rows of a ring where the new tokens of some spans go: i32 (spans * tokens,)."""
    places = []
    for start in starts:
        positions = f.consecutive(start, tokens)
        places.append(ops.remainder(positions, ops.full_like(positions, rows)))
    return ops.concatenate(*places, axis=0)
