"""The entry points of a language model, traced and optimized.

The ABI is described in bundle. An architecture brings a `Decoder`; every entry point of
every architecture goes through the same rewrite (models/optimized.py).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from hearthd.bundle import PADDING
from hearthd.models.cache_buffers import cache_types
from hearthd.models.decoder.drafting.assistant import Assistant, AssistantDrafter
from hearthd.models.decoder.drafting.draft_model import DraftModel
from hearthd.models.decoder.drafting.drafter import TunedDrafter
from hearthd.models.decoder.drafting.mtp import MtpDrafter, MtpModel
from hearthd.models.decoder.kv_cache import LayerCache, span_positions
from hearthd.models.decoder.layers import parts_of
from hearthd.models.decoder.slot_caches import layer_caches
from hearthd.models.decoder.tower_entry_points import (
    block_sizes,
    functions_of,
    tower_points,
    trace_tower,
    with_rows,
    with_slices,
)
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.lora.places import places_of
from hearthd.models.optimized import optimized
from hearthd.models.precision import ACTIVATION_BITS, PRECISIONS
from hearthd.models.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.bundle import CacheSpec, EntryPoint
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.drafting.drafter import ProgramDrafter
    from hearthd.models.decoder.kv_cache import StateRows
    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.program import ProgramOptions


# By the kind of an entry point: its arguments after the tokens, i32 (B,).
_INTEGERS = {
    "prefill": ("start",),
    "prefill_rows": ("start",),
    "prefill_block": ("start",),
    "embed": ("start", "count"),
    "decode": ("positions", "margin"),
    "verify": ("start", "margin"),
}
# Kinds that read rows of embeddings.
_WITH_ROWS = ("prefill_rows", "prefill_block")
# Kinds that read tokens after images: in some models they rotate by other positions.
_SHIFTED = ("prefill", "decode", "verify")
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
        """The states that a layer keeps of a sequence; none if it keeps a row of each position."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens i32 (N,) -> hidden states (N, E), which the first layer reads."""

    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], h: Tensor | None = None
    ) -> Tensor:
        """Tokens i32 (N,) at positions i32 (N,) -> their normalized hidden states (N, E).

        The first layer reads `h` (N, W), for W see `ModelConfig.row_width`; None for
        `embed(tokens)`. Keys and values of the tokens go into the layers' caches. Of a model with
        several `rotary_axes`, positions may be i32 (axes, N).
        """

    def logits(self, x: Tensor) -> Tensor:
        """Normalized hidden states (N, E) -> logits (N, V)."""


def program(model: Decoder, options: ProgramOptions) -> Program:
    """Trace and optimize every entry point. Allocates no weights and needs none.

    Raises TypeRuleError if the precision cannot store a matrix of the model.
    """
    config = model.config
    precision = PRECISIONS[options.precision]
    image = config.image if options.reads_rows else None
    blocks = block_sizes(config, options)
    block = max(blocks, default=0)
    drafter = _drafter(model, options, block)
    layers = [layer_caches(model, i, options, block) for i in range(config.cached_layers)]
    if drafter is not None:
        for i in drafter.layers_read:
            layers[i] = tuple(replace(spec, lent=True) for spec in layers[i])
        layers += drafter.caches
    towers = tower_points(config, options)
    points = (*options.entry_points(blocks), *towers)
    bits = ACTIVATION_BITS[options.activations]
    fine = {point.name for point in towers if config.has_fine_towers}
    axes = config.rotary_axes if image is not None else 1
    parameters = model.parameters()
    if drafter is not None:
        parameters |= drafter.named_parameters()
    result = optimized(
        [_trace(model, point, layers, drafter, axes) for point in points],
        parameters,
        storage=options.storage,
        kernels=precision.kernels,
        places=places_of(options, points),
        activation_bits=lambda name: 16 if name in fine else bits,
    )
    functions = [
        functions_of(point, graph) for point, graph in zip(points, result.graphs, strict=True)
    ]
    points = tuple(map(with_slices, points, functions))
    return Program(
        vocab_size=config.vocab_size,
        hidden=config.hidden,
        row_width=config.row_width,
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


def _drafter(model: Decoder, options: ProgramOptions, block: int) -> ProgramDrafter | None:
    """The drafter: a draft model, the MTP layer of the model, or else a tuned layer."""
    if not options.draft_tokens:
        return None
    if options.draft_model is not None:
        decoder = options.draft_model.decoder()
        if isinstance(decoder, Assistant):
            return AssistantDrafter(model, decoder, options, block)
        return DraftModel(decoder, options, block)
    if isinstance(model, MtpModel) and model.mtp is not None:
        return MtpDrafter(model, model.mtp, options)
    return TunedDrafter(model, options.draft_tokens)


def read(
    model: Decoder,
    tokens: Tensor,
    starts: list[Tensor],
    buffers: Sequence[Sequence[tuple[Tensor, ...]]],
    keys: int,
    rows: Tensor | None = None,
    *,
    rotary: Tensor | None = None,
    has_block: bool = False,
    drafter: ProgramDrafter | None = None,
) -> tuple[Tensor, list[LayerCache]]:
    """Have a model read new tokens: i32 (N,), the same number of each span, span after span.

    starts   the position of each span's first token, i32 (1,)
    buffers  by layer, then by sequence: see LayerCache. The drafter's layers follow
    keys     all positions are below it
    rows     (N, W), read in place of the embeddings of negative tokens
    rotary   rotary positions, i32 (N,) or (axes, N); None: the positions in the caches
    has_block  whether the tokens see each other in some layers
    drafter  follows what the model reads

    Returns the normalized hidden states (N, E), and the layers' caches with the tokens in them.
    """
    count, layers = tokens.shape[0] // len(starts), model.config.cached_layers
    positions = span_positions(starts, count) if rotary is None else rotary
    real, block = None, _block(starts[0], tokens) if has_block else None
    if any(map(model.states, range(layers))) or len(buffers) > layers:
        real = _real_tokens(tokens) if len(starts) == 1 else None
        if rows is None:
            tokens = ops.maximum(tokens, ops.full_like(tokens, 0))
    caches = [
        LayerCache(
            buffers=list(pairs),
            starts=starts,
            keys=keys,
            window=model.window(layer) if layer < layers else None,
            count=real,
            block=block if layer < layers and model.config.looks_ahead(layer) else None,
        )
        for layer, pairs in enumerate(buffers)
    ]
    h = None
    if rows is not None:
        tokens, h = with_rows(model, tokens, rows)
    x = model(tokens, positions, caches[:layers], h)
    if drafter is not None:
        embedded = model.embed(tokens) if h is None else parts_of(h, model.config.hidden)[0]
        drafter.follow(tokens, x, embedded, positions, caches[layers:])
    return x, caches


def _real_tokens(tokens: Tensor) -> Tensor:
    """How many of some tokens, i32 (N,), are not padding: i32 (1,)."""
    is_real = ops.compare(tokens, ops.full_like(tokens, PADDING), direction="GT")
    count = ops.reduce_sum(ops.convert(is_real, dtype=DType.F32), axes=(0,))
    return ops.reshape(ops.convert(count, dtype=DType.I32), shape=(1,))


def _block(start: Tensor, tokens: Tensor) -> Tensor:
    """The first position of a span, and the position after its real tokens: i32 (2,)."""
    return ops.concatenate(start, start + _real_tokens(tokens), axis=0)


def _trace(
    model: Decoder,
    point: EntryPoint,
    layers: Sequence[tuple[CacheSpec, ...]],
    drafter: ProgramDrafter | None,
    axes: int,
) -> Graph:
    """An entry point of a model whose rotary positions have a number of axes."""
    if point.kind in ("image", "sound"):
        return trace_tower(model, point)
    if point.kind == "draft":
        assert drafter is not None, "an entry point of a drafter, without one"
        return drafter.graph(point)
    if any(not spec.is_argument(point.kind) for layer in layers for spec in layer):
        layers, drafter = layers[: model.config.cached_layers], None
    caches = [spec for layer in layers for spec in layer]
    parameters = model.parameters()
    if drafter is not None:
        parameters |= drafter.named_parameters()
    with_states = drafter is not None and point.kind in _WITH_STATES
    step = _step(model, point, [len(layer) for layer in layers], drafter)
    inputs = {"tokens": TensorType((point.batch * point.tokens,), DType.I32)}
    inputs |= {name: TensorType((point.batch,), DType.I32) for name in _INTEGERS[point.kind]}
    if axes > 1 and point.kind in _SHIFTED:
        inputs["shifts"] = TensorType((point.batch,), DType.I32)
    if point.kind in _WITH_ROWS:
        if axes > 1:
            inputs["rotary"] = TensorType((axes, point.tokens), DType.I32)
        inputs["rows"] = TensorType((point.tokens, model.config.row_width), DType.F32)
    first = len(inputs)
    results = 0 if point.kind.startswith("prefill") else 1 + with_states
    inputs |= {
        f"slot{slot}.{name}": type_
        for slot in range(point.batch)
        for name, type_ in cache_types(caches).items()
    }
    in_place = {results + i: first + i for i in range(point.batch * len(caches))}
    return trace(point.name, step, inputs, parameters=parameters, in_place=in_place)


def _step(
    model: Decoder, point: EntryPoint, counts: Sequence[int], drafter: ProgramDrafter | None
) -> Callable[..., tuple[Tensor, ...]]:
    """An entry point's function, for layers with `counts` buffers, the drafter's last.

    With a drafter, states (N, E) follow the logits.
    """
    run = _reader(model, point, counts, drafter)
    states = drafter is not None

    def prefill(tokens: Tensor, start: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        return tuple(run(tokens, [start], others)[1])

    def embed(tokens: Tensor, start: Tensor, count: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        x, updated = run(tokens, [start], others)
        pooled = _sum_of_first if model.config.pooling == "mean" else _last_of_first
        return (pooled(x, count), *updated)

    def logits(x: Tensor, updated: list[Tensor], margin: Tensor) -> tuple[Tensor, ...]:
        return (f.approximate_logits(model.logits(x), margin), *[x] * states, *updated)

    def decode(
        tokens: Tensor, positions: Tensor, margin: Tensor, *others: Tensor
    ) -> tuple[Tensor, ...]:
        starts = [f.narrow(positions, 0, i, i + 1) for i in range(point.batch)]
        return logits(*run(tokens, starts, others), margin)

    def verify(tokens: Tensor, start: Tensor, margin: Tensor, *more: Tensor) -> tuple[Tensor, ...]:
        # A span for each token: it is computed as a decode computes it, and has the same bits.
        firsts = f.split(start, [1] * point.batch, axis=0)
        starts = [first + ahead for first in firsts for ahead in range(point.tokens)]
        return logits(*run(tokens, starts, more), f.repeated(margin, point.tokens))

    steps: dict[str, Callable[..., tuple[Tensor, ...]]]
    steps = {"embed": embed, "decode": decode, "verify": verify}
    return steps.get(point.kind, prefill)


def _reader(
    model: Decoder, point: EntryPoint, counts: Sequence[int], drafter: ProgramDrafter | None
) -> Callable[[Tensor, list[Tensor], tuple[Tensor, ...]], tuple[Tensor, list[Tensor]]]:
    """A function that reads tokens.

    Of the tokens, the starts of their spans, and the arguments after the entry point's integers
    -> the normalized hidden states (N, E) and the buffers of all slots.
    """
    size, has_rows = point.batch * sum(counts), point.kind in _WITH_ROWS

    def run(
        tokens: Tensor, starts: list[Tensor], others: tuple[Tensor, ...]
    ) -> tuple[Tensor, list[Tensor]]:
        more, slots = others[: len(others) - size], others[len(others) - size :]
        rotary = more[0] if len(more) > has_rows else None
        if rotary is not None and rotary.type.rank == 1:
            rotary = _shifted(starts, rotary, tokens.shape[0] // len(starts))
        x, updated = read(
            model,
            tokens,
            starts,
            _by_layer(slots, counts, point.batch),
            point.keys,
            more[-1] if has_rows else None,
            rotary=rotary,
            has_block=point.kind == "prefill_block",
            drafter=drafter,
        )
        return x, _by_slot(updated, point.batch)

    return run


def _shifted(starts: list[Tensor], shifts: Tensor, count: int) -> Tensor:
    """The rotary positions of spans of `count` tokens: i32 (spans * count,).

    `shifts` i32 (B,) has what is added to the positions of each span, or of all spans if B is 1.
    """
    each = f.split(f.repeated(shifts, len(starts) // shifts.shape[0]), [1] * len(starts), axis=0)
    return span_positions([x + shift for x, shift in zip(starts, each, strict=True)], count)


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
