"""The entry points of a language model: what a bundle offers, traced and optimized.

The ABI is described in bundle. An architecture brings a `Decoder`; every entry point of
every architecture goes through the same rewrite (models/optimized.py).
"""

from __future__ import annotations

import dataclasses
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hearthd.bundle import PADDING, EntryPoint
from hearthd.models.decoder.drafter import TunedDrafter
from hearthd.models.decoder.kv_cache import LayerCache
from hearthd.models.decoder.mtp import MtpDrafter, MtpModel
from hearthd.models.decoder.slot_caches import layer_caches
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.fused.adapter_products import MAX_SMALL_RANK, TERMS
from hearthd.models.dsl.graph_slices import sliced
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.lora.places import Places
from hearthd.models.optimized import optimized
from hearthd.models.precision import ACTIVATION_BITS, PRECISIONS
from hearthd.models.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.bundle import CacheSpec
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.drafter import DraftModel
    from hearthd.models.decoder.kv_cache import StateRows
    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.program import ProgramOptions


# Operations of a slice of a tower: 30 ms on two cores that do 600 GFLOP/s. A step of the engine
# computes slices until its time for images has passed (server/engine/step.py).
SLICE_WORK = 2**34

# By the kind of an entry point: its arguments after the tokens, i32 (B,).
_INTEGERS = {
    "prefill": ("start",),
    "prefill_rows": ("start",),
    "prefill_block": ("start",),
    "embed": ("start", "count"),
    "decode": ("positions", "exact"),
    "verify": ("start", "exact"),
}
# Kinds that also return the hidden states of their tokens, for a drafter.
_WITH_STATES = ("decode", "verify")


class Decoder(Protocol):
    """A decoder-only transformer.

    `N` is sequences x tokens, `E` the hidden width, `V` the vocabulary.
    """

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""

    def parameters(self) -> dict[str, Tensor]:
        """Every weight by its name."""

    def window(self, layer: int) -> int | None:
        """Keys that a token sees in a layer, itself included; None for all of them."""

    def cache_width(self, layer: int) -> int:
        """The width of each of the two caches of a layer; 0 if it has none."""

    def cache_heads(self, layer: int) -> int:
        """The heads in a row of each of the two caches of a layer; 0 if they hold no heads."""

    def states(self, layer: int) -> tuple[StateRows, ...]:
        """What a layer keeps of a sequence, if it keeps no row of each position."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens i32 (N,) -> hidden states (N, E), which the first layer reads."""

    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], h: Tensor | None = None
    ) -> Tensor:
        """Tokens i32 (N,) at positions i32 (N,) -> their normalized hidden states (N, E).

        The first layer reads `h` (N, E); None for `embed(tokens)`. Keys and values of the tokens go
        into the layers' caches.
        """

    def logits(self, x: Tensor) -> Tensor:
        """Normalized hidden states (N, E) -> logits (N, V)."""


@runtime_checkable
class ImageReader(Protocol):
    """A model with a tower for square images."""

    def read_image(self, pixels: Tensor) -> Tensor:
        """Normalized pixels f32 (3, S, S) -> inputs of the first layer (rows, E)."""


def program(model: Decoder, options: ProgramOptions) -> Program:
    """Trace and optimize every entry point. Allocates no weights and needs none.

    Raises TypeRuleError if the precision cannot store a matrix of the model.
    """
    config = model.config
    precision = PRECISIONS[options.precision]
    image = config.image if options.reads_rows else None
    block = image.rows if image is not None and image.both_ways else 0
    drafter = _drafter(model, options)
    layers = [
        *(layer_caches(model, layer, options, block) for layer in range(config.cached_layers)),
        *(() if drafter is None else drafter.caches),
    ]
    points = options.entry_points(block)
    if image is not None:
        size = image.rows
        points += (EntryPoint(name="image", kind="image", batch=1, tokens=size, keys=size),)
    parameters = model.parameters()
    if drafter is not None:
        parameters |= drafter.named_parameters()
    result = optimized(
        [_trace(model, point, layers, drafter) for point in points],
        parameters,
        storage=options.storage,
        kernels=precision.kernels,
        places=_places(options, points),
        activation_bits=ACTIVATION_BITS[options.activations],
    )
    functions = [
        _functions(point, graph) for point, graph in zip(points, result.graphs, strict=True)
    ]
    points = tuple(map(_with_slices, points, functions))
    return Program(
        vocab_size=config.vocab_size,
        hidden=config.hidden,
        caches=tuple(spec for layer in layers for spec in layer),
        entry_points=tuple(zip(points, result.graphs, strict=True)),
        graphs=tuple(graph for graphs in functions for graph in graphs),
        weights=result.weights,
        fusions={point.name: counts for point, counts in zip(points, result.counts, strict=True)},
        unfused={
            point.name: unfused for point, unfused in zip(points, result.unfused, strict=True)
        },
        adapters=result.adapters,
    )


def _drafter(model: Decoder, options: ProgramOptions) -> DraftModel | None:
    """What drafts tokens: the layer of the checkpoint that predicts them, or else a tuned one."""
    if not options.draft_tokens:
        return None
    if isinstance(model, MtpModel) and model.mtp is not None:
        return MtpDrafter(model, model.mtp, options)
    return TunedDrafter(model, options.draft_tokens)


def _functions(point: EntryPoint, graph: Graph) -> tuple[Graph, ...]:
    """The functions of an entry point that are compiled."""
    return sliced(graph, SLICE_WORK) if point.kind == "image" else (graph,)


def _with_slices(point: EntryPoint, functions: Sequence[Graph]) -> EntryPoint:
    between = [sum(x.type.nbytes for x in graph.inputs) for graph in functions[1:]]
    return dataclasses.replace(point, slices=len(functions), kept=max(between, default=0))


def _places(options: ProgramOptions, points: Sequence[EntryPoint]) -> Places | None:
    """The places for LoRA adapters, if there are any."""
    if not options.adapters:
        return None
    rank, dtype = options.adapter_rank, PRECISIONS[options.precision].adapters
    if dtype == "i8" and rank > MAX_SMALL_RANK:
        dtype = "f16"
    if dtype == "i8":
        rank = -(-rank // TERMS) * TERMS
    return Places(
        count=options.adapters,
        rank=rank,
        dtype=dtype,
        sequences={point.name: point.batch for point in points if point.adapters},
    )


def read(
    model: Decoder,
    tokens: Tensor,
    starts: list[Tensor],
    buffers: Sequence[Sequence[tuple[Tensor, ...]]],
    keys: int,
    rows: Tensor | None = None,
    *,
    causal: bool = True,
    drafter: DraftModel | None = None,
) -> tuple[Tensor, list[LayerCache]]:
    """Have a model read new tokens: i32 (N,), the same number of each span, span after span.

    starts   the position of each span's first token, i32 (1,)
    buffers  by layer, then by sequence: see LayerCache. Those of the drafter follow
    keys     all positions are below it
    rows     (N, E), read in place of the embeddings of negative tokens
    causal   whether a token sees no later one; otherwise it sees all tokens of its span
    drafter  follows what the model reads

    Returns the normalized hidden states (N, E), and the layers' caches with the tokens in them.
    """
    count, layers = tokens.shape[0] // len(starts), model.config.cached_layers
    positions = ops.concatenate(*(f.consecutive(start, count) for start in starts), axis=0)
    real = None
    if any(map(model.states, range(layers))) or len(buffers) > layers:
        if len(starts) == 1:
            real = _real_tokens(tokens)
        if rows is None:
            tokens = ops.maximum(tokens, ops.full_like(tokens, 0))
    caches = [
        LayerCache(
            buffers=list(pairs),
            starts=starts,
            keys=keys,
            window=model.window(layer) if layer < layers else None,
            count=real,
            causal=causal,
        )
        for layer, pairs in enumerate(buffers)
    ]
    h = None
    if rows is not None:
        tokens, h = _embedded(model, tokens, rows)
    x = model(tokens, positions, caches[:layers], h)
    if drafter is not None:
        embedded = model.embed(tokens) if h is None else h
        drafter.follow(x, embedded, positions, caches[layers:])
    return x, caches


def _embedded(model: Decoder, tokens: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens with 0 in place of the negative ones, and what the first layer reads, (N, E)."""
    zero = ops.full_like(tokens, 0)
    has_row = ops.compare(tokens, zero, direction="LT")
    tokens = ops.maximum(tokens, zero)
    has_row = ops.broadcast(has_row, shape=rows.shape, axes=(0,))
    return tokens, ops.select(has_row, rows, model.embed(tokens))


def _real_tokens(tokens: Tensor) -> Tensor:
    """How many of some tokens, i32 (N,), are not padding: i32 (1,)."""
    is_real = ops.compare(tokens, ops.full_like(tokens, PADDING), direction="GT")
    count = ops.reduce_sum(ops.convert(is_real, dtype=DType.F32), axes=(0,))
    return ops.reshape(ops.convert(count, dtype=DType.I32), shape=(1,))


def _trace(
    model: Decoder,
    point: EntryPoint,
    layers: Sequence[tuple[CacheSpec, ...]],
    drafter: DraftModel | None,
) -> Graph:
    if point.kind == "image":
        return _trace_tower(model, point)
    if point.kind == "draft":
        assert drafter is not None, "an entry point of a drafter, without one"
        return drafter.graph(point)
    caches = [spec for layer in layers for spec in layer]
    with_states = drafter is not None and point.kind in _WITH_STATES
    step = _step(model, point, [len(layer) for layer in layers], drafter)
    inputs = {"tokens": TensorType((point.batch * point.tokens,), DType.I32)}
    inputs |= {name: TensorType((point.batch,), DType.I32) for name in _INTEGERS[point.kind]}
    if point.kind in ("prefill_rows", "prefill_block"):
        inputs["rows"] = TensorType((point.tokens, model.config.hidden), DType.F32)
    first = len(inputs)
    results = 0 if point.kind.startswith("prefill") else 1 + with_states
    inputs |= {
        f"slot{slot}.{spec.name}": TensorType((spec.rows, spec.width), DType.named(spec.dtype))
        for slot in range(point.batch)
        for spec in caches
    }
    in_place = {results + i: first + i for i in range(point.batch * len(caches))}
    return trace(point.name, step, inputs, parameters=model.parameters(), in_place=in_place)


def _trace_tower(model: Decoder, point: EntryPoint) -> Graph:
    assert isinstance(model, ImageReader), "a model without a tower"
    assert model.config.image is not None, "images of no size"
    side = model.config.image.side
    inputs = {"pixels": TensorType((3, side, side), DType.F32)}
    return trace(
        point.name,
        lambda pixels: (model.read_image(pixels),),
        inputs,
        parameters=model.parameters(),
    )


def _reading(
    model: Decoder, point: EntryPoint, counts: Sequence[int], drafter: DraftModel | None
) -> Callable[..., tuple[Tensor, list[Tensor]]]:
    """(tokens, starts, slots, rows or None) -> the hidden states (N, E), and the updated slots."""

    def run(
        tokens: Tensor, starts: list[Tensor], slots: tuple[Tensor, ...], rows: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        buffers = _by_layer(slots, counts, point.batch)
        causal = point.kind != "prefill_block"
        x, updated = read(
            model, tokens, starts, buffers, point.keys, rows, causal=causal, drafter=drafter
        )
        return x, _by_slot(updated, point.batch)

    return run


def _step(
    model: Decoder, point: EntryPoint, counts: Sequence[int], drafter: DraftModel | None
) -> Callable[..., tuple[Tensor, ...]]:
    """An entry point's function, for layers with `counts` buffers; see `_reading`."""
    run = _reading(model, point, counts, drafter)
    states = drafter is not None  # follow the logits

    def prefill(tokens: Tensor, start: Tensor, *slots: Tensor) -> tuple[Tensor, ...]:
        return tuple(run(tokens, [start], slots)[1])

    def prefill_rows(
        tokens: Tensor, start: Tensor, rows: Tensor, *slots: Tensor
    ) -> tuple[Tensor, ...]:
        return tuple(run(tokens, [start], slots, rows)[1])

    def embed(tokens: Tensor, start: Tensor, count: Tensor, *slots: Tensor) -> tuple[Tensor, ...]:
        x, updated = run(tokens, [start], slots)
        pooled = _sum_of_first if model.config.pooling == "mean" else _last_of_first
        return (pooled(x, count), *updated)

    def logits(x: Tensor, updated: list[Tensor], exact: Tensor) -> tuple[Tensor, ...]:
        return (f.approximate_logits(model.logits(x), exact), *[x] * states, *updated)

    def decode(
        tokens: Tensor, positions: Tensor, exact: Tensor, *slots: Tensor
    ) -> tuple[Tensor, ...]:
        starts = [f.narrow(positions, 0, i, i + 1) for i in range(point.batch)]
        return logits(*run(tokens, starts, slots), exact)

    def verify(tokens: Tensor, start: Tensor, exact: Tensor, *slots: Tensor) -> tuple[Tensor, ...]:
        # A span for each token: it is computed as a decode computes it, and has the same bits.
        starts = [start + ahead for ahead in range(point.tokens)]
        return logits(*run(tokens, starts, slots), f.trailing(exact, (point.tokens,)))

    steps: dict[str, Callable[..., tuple[Tensor, ...]]] = {
        "prefill": prefill,
        "prefill_rows": prefill_rows,
        "prefill_block": prefill_rows,
        "embed": embed,
        "decode": decode,
        "verify": verify,
    }
    return steps[point.kind]


def _sum_of_first(x: Tensor, count: Tensor) -> Tensor:
    """The sum of the first `count`, i32 (1,), rows of (T, E): (E,)."""
    row = ops.iota(shape=x.shape, axis=0, dtype=DType.I32)
    counted = ops.compare(row, f.trailing(count, x.shape), direction="LT")
    return ops.reduce_sum(ops.select(counted, x, ops.full_like(x, 0.0)), axes=(0,))


def _last_of_first(x: Tensor, count: Tensor) -> Tensor:
    """The last one of the first `count`, i32 (1,), rows of (T, E): (E,)."""
    return ops.reshape(ops.gather(x, count + -1, axis=0), shape=(x.shape[1],))


def _by_layer(
    slots: tuple[Tensor, ...], counts: Sequence[int], batch: int
) -> list[list[tuple[Tensor, ...]]]:
    """Arguments in the order slot, layer, buffer -> the buffers by layer, then slot.

    `counts` has the number of buffers of each layer.
    """
    size = sum(counts)
    firsts = [slot * size for slot in range(batch)]
    ends = accumulate(counts)
    return [
        [slots[first + end - count : first + end] for first in firsts]
        for count, end in zip(counts, ends, strict=True)
    ]


def _by_slot(caches: list[LayerCache], count: int) -> list[Tensor]:
    """The inverse of `_by_layer`."""
    return [x for slot in range(count) for layer in caches for x in layer.buffers[slot]]
