"""What decoder-only transformers share: ring caches, attention over them, and the entry points.

Knows no layer's inside: an architecture brings a `Decoder`, and `program` traces what
models/bundle.py says a bundle offers. What stands between a layer's products is plain functions, or
kernels of ours where the options say so: that is chosen here and nowhere else.

`N` is sequences x tokens, `E` the hidden width, `H` query heads, `G` key/value heads, `D` the width
of a head, `R` the rows of a KV cache, `V` the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from models.bundle import CacheSpec
from models.dsl import functions as f
from models.dsl import nn, ops
from models.dsl.graph import Tensor
from models.dsl.trace import trace
from models.dsl.types import DType, TensorType
from models.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from models.bundle import EntryPoint
    from models.config import ModelConfig
    from models.dsl.graph import Graph
    from models.program import ProgramOptions

# Cosine and sine of every position's angles, each f32 (N, D / 2).
RopeTable: TypeAlias = tuple[Tensor, Tensor]


class Decoder(Protocol):
    """A model of which entry points are made."""

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""

    @property
    def options(self) -> ProgramOptions:
        """What is fixed while baking."""

    def parameters(self) -> dict[str, Tensor]:
        """Every weight by its name."""

    def window(self, layer: int) -> int | None:
        """Keys that a layer sees, the token itself included; None for all of them."""

    def __call__(
        self, tokens: Tensor, starts: list[Tensor], caches: list[list[KVCache]], keys: int
    ) -> tuple[Tensor, list[list[KVCache]]]:
        """Read new tokens: i32 (N,), the same number T of each span, one after the other.

        `starts` holds the position of each span's first token, i32 (1,); `caches` are indexed by
        layer, then by sequence; all positions lie below `keys`. A sequence has one span, or as many
        as every other one. Returns the hidden state (N, E), normalised, and the caches with the new
        tokens in them.
        """

    def logits(self, x: Tensor, exact: Tensor | None = None) -> Tensor:
        """Hidden state (N, E), normalised -> logits (N, V).

        In rows for which `exact`, i32 (N,), is 0, those that are far below the best may be coarse.
        """


# --- caches


@dataclass(frozen=True)
class Span:
    """New tokens of one sequence, and what a layer shows them; the same for all layers of a kind.

    start   i32 (1,): the position of the first
    window  keys that each sees, itself included
    rows    i32 (T,): where the new tokens go in the cache
    seen    bool (T, S): which of the cache's first S rows each attends to; None where a kernel of
            ours attends, which knows it from the position
    """

    start: Tensor
    window: int
    rows: Tensor
    seen: Tensor | None


@dataclass(frozen=True)
class KVCache:
    """Keys and values of one layer and one sequence, each f32 (R, G * D).

    The cache is a ring: position p lies in row p mod R. A sliding layer keeps its window and one
    chunk more, a global layer the context and one chunk more, so that a chunk's padding never
    lands on a row that a real token can still see.
    """

    key: Tensor
    value: Tensor

    def update(self, key: Tensor, value: Tensor, rows: Tensor) -> KVCache:
        """Replace rows, in place once compiled."""
        return KVCache(
            ops.scatter(self.key, rows, key, combine="replace"),
            ops.scatter(self.value, rows, value, combine="replace"),
        )


def cache_rows(window: int | None, options: ProgramOptions) -> int:
    """R of a layer that sees so many keys."""
    context = options.context
    return (context if window is None else min(window, context)) + options.chunk


def span(
    start: Tensor, tokens: int, window: int | None, keys: int, options: ProgramOptions
) -> Span:
    """The span of the new tokens at positions start, start + 1, ... < keys: start is i32 (1,)."""
    rows = cache_rows(window, options)
    positions = count_up(start, tokens)
    return Span(
        start=start,
        window=window or options.context,
        rows=_modulo(positions, rows),
        seen=None if options.kernels else _seen(positions, start, window, rows, min(keys, rows)),
    )


def _seen(
    positions: Tensor, start: Tensor, window: int | None, rows: int, looked_at: int
) -> Tensor:
    """Which of a cache's first rows each token attends to: bool (T, looked_at)."""
    # With fewer keys than rows, position p lies in row p.
    newest = f.trailing(start + (positions.shape[0] - 1), (looked_at,))
    # Row r holds the newest position p <= newest with p mod R == r; if negative, none yet. One that
    # holds a later position, of a span behind this one, counts as p - R: too old to be seen.
    row = ops.iota(shape=(looked_at,), axis=0, dtype=DType.I32)
    age = _modulo(newest - row + rows, rows)
    return f.visible(positions, newest - age, window)


def count_up(start: Tensor, tokens: int) -> Tensor:
    """start, start + 1, ...: i32 (1,) -> i32 (tokens,)."""
    ahead = ops.iota(shape=(tokens,), axis=0, dtype=DType.I32)
    return f.trailing(start, (tokens,)) + ahead


def _modulo(x: Tensor, n: int) -> Tensor:
    """x mod n for x >= 0."""
    return ops.remainder(x, ops.full_like(x, n))


# --- attention


def split_heads(x: Tensor, width: int) -> Tensor:
    """(rows, heads * D) -> (rows, heads, D)."""
    return ops.reshape(x, shape=(x.shape[0], x.shape[1] // width, width))


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    spans: list[Span],
    caches: list[KVCache],
    *,
    scale: float,
) -> tuple[Tensor, list[KVCache]]:
    """Attention of each span over its sequence's cache, into which all new tokens go first.

    query (N, H, D), key and value (N, G, D) -> (N, H * D), and the updated caches.
    """
    key, value = (ops.reshape(x, shape=(x.shape[0], x.shape[1] * x.shape[2])) for x in (key, value))
    mixed, updated = [], []
    tokens, each = query.shape[0] // len(spans), len(spans) // len(caches)
    for i, cache in enumerate(caches):
        own = range(i * each, (i + 1) * each)
        new = (own.start * tokens, own.stop * tokens)
        rows = ops.concatenate(*(spans[j].rows for j in own), axis=0)
        cache = cache.update(f.narrow(key, 0, *new), f.narrow(value, 0, *new), rows)
        mixed += [
            _attend_one(f.narrow(query, 0, j * tokens, (j + 1) * tokens), cache, spans[j], scale)
            for j in own
        ]
        updated.append(cache)
    return ops.concatenate(*mixed, axis=0), updated


def _attend_one(query: Tensor, cache: KVCache, span: Span, scale: float) -> Tensor:
    """Attention of one span: query (T, H, D) -> (T, H * D)."""
    tokens, heads, width = query.shape
    if span.seen is None:
        mixed = ops.attention_cached(
            query, cache.key, cache.value, span.start, window=span.window, scale=scale
        )
        return ops.reshape(mixed, shape=(tokens, heads * width))
    looked_at = (f.narrow(rows, 0, 0, span.seen.shape[1]) for rows in (cache.key, cache.value))
    batch = (query, *(split_heads(rows, width) for rows in looked_at))
    query, key, value = (ops.reshape(x, shape=(1, *x.shape)) for x in batch)
    mixed = f.scaled_dot_product_attention(query, key, value, seen=span.seen, scale=scale)
    return ops.reshape(mixed, shape=(tokens, heads * width))


# --- between a layer's products


def rotated(
    heads: Tensor, start: int, stop: int, norm: nn.RMSNorm, rope: RopeTable, *, kernels: bool
) -> Tensor:
    """Some of the heads (N, ..., D), normalised and then rotated: (N, stop - start, D)."""
    if kernels:
        own = (start, stop)
        return ops.rotated_norm(heads, norm.weight, *rope, heads=own, eps=norm.eps)
    return f.rope(norm(f.narrow(heads, 1, start, stop)), *rope)


def residual(
    h: Tensor, y: Tensor, after: nn.RMSNorm, before: nn.RMSNorm, *, kernels: bool
) -> tuple[Tensor, Tensor]:
    """h + after(y), and that as `before` normalises it, each (N, E); the norms have one eps."""
    if kernels:
        both = ops.residual_norm(h, y, after.weight, before.weight, eps=before.eps)
        return f.at(both, 0), f.at(both, 1)
    h = h + after(y)
    return h, before(h)


# --- entry points


def program(model: Decoder) -> Program:
    """Trace every entry point. Allocates no weights and needs none."""
    config, options = model.config, model.options
    caches = tuple(
        CacheSpec(
            name=f"layers.{layer}.{what}",
            rows=cache_rows(model.window(layer), options),
            width=config.kv_heads * config.head_dim,
            dtype="f32",
        )
        for layer in range(config.layers)
        for what in ("key", "value")
    )
    parameters = model.parameters()
    return Program(
        vocab_size=config.vocab_size,
        hidden=config.hidden,
        caches=caches,
        entry_points=tuple(
            (point, _trace(model, point, caches, parameters)) for point in options.entry_points()
        ),
        parameters={name: tensor.type for name, tensor in parameters.items()},
    )


def _trace(
    model: Decoder,
    point: EntryPoint,
    caches: tuple[CacheSpec, ...],
    parameters: dict[str, Tensor],
) -> Graph:
    def prefill(tokens: Tensor, start: Tensor, *buffers: Tensor) -> tuple[Tensor, ...]:
        _, updated = model(tokens, [start], _by_layer(buffers, point.batch), point.keys)
        return tuple(_by_slot(updated, point.batch))

    def embed(tokens: Tensor, start: Tensor, count: Tensor, *buffers: Tensor) -> tuple[Tensor, ...]:
        x, updated = model(tokens, [start], _by_layer(buffers, point.batch), point.keys)
        return (_sum_of_first(x, count), *_by_slot(updated, point.batch))

    def decode(
        tokens: Tensor, positions: Tensor, exact: Tensor, *buffers: Tensor
    ) -> tuple[Tensor, ...]:
        starts = [f.narrow(positions, 0, i, i + 1) for i in range(point.batch)]
        x, updated = model(tokens, starts, _by_layer(buffers, point.batch), point.keys)
        return (model.logits(x, exact), *_by_slot(updated, point.batch))

    def verify(
        tokens: Tensor, start: Tensor, exact: Tensor, *buffers: Tensor
    ) -> tuple[Tensor, ...]:
        # A span for each token: it is computed as a decode would, and has a decode's bits.
        starts = [start + ahead for ahead in range(point.tokens)]
        x, updated = model(tokens, starts, _by_layer(buffers, point.batch), point.keys)
        logits = model.logits(x, f.trailing(exact, (point.tokens,)))
        return (logits, *_by_slot(updated, point.batch))

    # The function, the names of its i32 arguments behind the tokens, its results before the caches.
    forms: dict[str, tuple[Callable[..., tuple[Tensor, ...]], tuple[str, ...], int]] = {
        "prefill": (prefill, ("start",), 0),
        "embed": (embed, ("start", "count"), 1),
        "decode": (decode, ("positions", "exact"), 1),
        "verify": (verify, ("start", "exact"), 1),
    }
    step, numbers, results = forms[point.kind]
    inputs = {"tokens": TensorType((point.batch * point.tokens,), DType.I32)}
    inputs |= {name: TensorType((point.batch,), DType.I32) for name in numbers}
    first = len(inputs)
    inputs |= {
        f"slot{slot}.{spec.name}": TensorType((spec.rows, spec.width), DType.named(spec.dtype))
        for slot in range(point.batch)
        for spec in caches
    }
    in_place = {results + i: first + i for i in range(point.batch * len(caches))}
    return trace(point.name, step, inputs, parameters=parameters, in_place=in_place)


def _sum_of_first(x: Tensor, count: Tensor) -> Tensor:
    """The sum of the first rows of (T, E), of which there are `count`, i32 (1,): (E,)."""
    row = ops.iota(shape=x.shape, axis=0, dtype=DType.I32)
    real = ops.compare(row, f.trailing(count, x.shape), direction="LT")
    return ops.reduce_sum(ops.select(real, x, ops.full_like(x, 0.0)), axes=(0,))


def _by_layer(buffers: tuple[Tensor, ...], slots: int) -> list[list[KVCache]]:
    """Arguments in the order slot, layer, (key, value) -> caches by layer, then slot."""
    each = len(buffers) // slots
    return [
        [
            KVCache(*buffers[slot * each + 2 * layer : slot * each + 2 * layer + 2])
            for slot in range(slots)
        ]
        for layer in range(each // 2)
    ]


def _by_slot(caches: list[list[KVCache]], slots: int) -> list[Tensor]:
    """The other way round."""
    return [
        buffer
        for slot in range(slots)
        for layer in caches
        for buffer in (layer[slot].key, layer[slot].value)
    ]
