"""The functions of a model of speech: hear a window of sound, and decode its text.

The ABI is described in bundle/manifests/speech_manifest.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hearthd.bundle import ALIGN, DECODE, ENCODE, PREFILL, CacheSpec
from hearthd.models.cache_buffers import cache_types
from hearthd.models.decoder.kv_cache import LayerCache, written_rows
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.matrix_format import GROUP
from hearthd.models.dsl.storage import F32
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.optimized import optimized
from hearthd.models.precision import PRECISIONS
from hearthd.models.program import ArraysProgram, StorageOptions
from hearthd.models.speech.heard import AlignedHeard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.bundle import CacheDType
    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.dsl.storage import Storage
    from hearthd.models.precision import Precision
    from hearthd.models.speech.heard import Heard

LOGITS, SCORES = "logits", "scores"


class SpeechModel(Protocol):
    """An encoder of sound, and a decoder that reads its states."""

    @property
    def config(self) -> Any:
        """The model's shape."""

    def parameters(self) -> dict[str, Tensor]:
        """Every weight by its name."""

    def hear(self, spectrogram: Tensor) -> list[tuple[Tensor, Tensor]]:
        """f32 (mels, 2 S) -> keys and values of each layer of the decoder, each (S, H, D)."""

    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], heard: Sequence[Heard]
    ) -> Tensor:
        """Tokens i32 (N,) at positions i32 (N,) -> normalized hidden states (N, E)."""

    def logits(self, x: Tensor) -> Tensor:
        """Normalized hidden states (N, E) -> logits (N, V)."""


@dataclass(frozen=True, kw_only=True)
class SpeechOptions(StorageOptions):
    """The options that are fixed while baking.

    prefill          tokens of a prefill
    alignment_heads  layer and head of the cross attentions that follow the sound, in order; none:
                     the program cannot align
    """

    prefill: int = 16
    alignment_heads: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class SpeechProgram(ArraysProgram):
    """The functions of a model of speech.

    heard   the buffers of a window: keys and values of each layer, of the encoder's states
    caches  the buffers of its text: keys and values of each layer, of tokens
    """

    heard: tuple[CacheSpec, ...]
    caches: tuple[CacheSpec, ...]


def program(model: SpeechModel, options: SpeechOptions) -> SpeechProgram:
    """Trace and optimize every function. Allocates no weights and needs none.

    Raises TypeRuleError if the precision cannot store a matrix of the model.
    """
    config, precision = model.config, PRECISIONS[options.precision]
    parameters = model.parameters()
    heard = _buffers("heard", config, config.states, precision)
    caches = _buffers("cache", config, config.max_context + options.prefill, precision)

    def storage(name: str) -> Storage:
        return _storage(options, name, parameters[name].shape[-1])

    graphs = [
        _encode(model, heard),
        _read(model, PREFILL, options.prefill, caches, heard),
        _read(model, DECODE, 1, caches, heard),
    ]
    if heads := options.alignment_heads:
        graphs.append(_read(model, ALIGN, options.prefill, caches, heard, heads))
    result = optimized(
        graphs,
        parameters,
        storage=storage,
        kernels=precision.kernels,
    )
    names = [spec.name for spec in caches]
    return SpeechProgram(
        graphs=result.graphs,
        outputs={
            ENCODE: tuple(spec.name for spec in heard),
            PREFILL: tuple(names),
            DECODE: (LOGITS, *names),
            ALIGN: (SCORES, *names),
        },
        weights=result.weights,
        heard=heard,
        caches=caches,
    )


def _buffers(name: str, config: Any, rows: int, precision: Precision) -> tuple[CacheSpec, ...]:
    """Keys and values of each layer."""
    dtype: CacheDType = "f16" if precision.kernels else "f32"
    return tuple(
        CacheSpec(name=f"{name}.{layer}.{each}", rows=rows, width=config.hidden, dtype=dtype)
        for layer in range(config.layers)
        for each in ("key", "value")
    )


def _storage(options: StorageOptions, name: str, columns: int) -> Storage:
    """As the options say; but the first convolution of 80 mels has no whole groups of columns."""
    storage = options.storage(name)
    return F32 if storage.format is not None and columns % GROUP else storage


def _encode(model: SpeechModel, heard: Sequence[CacheSpec]) -> Graph:
    config = model.config

    def encode(spectrogram: Tensor, *buffers: Tensor) -> tuple[Tensor, ...]:
        new = [x for pair in model.hear(spectrogram) for x in pair]
        if heard[0].dtype == "f32":
            # The compiler keeps up to 60 rows on the stack of a dispatch that also writes them.
            new = [ops.barrier(x) for x in new]
        row = ops.iota(shape=(config.states,), axis=0, dtype=DType.I32)
        return tuple(written_rows(buffer, row, x) for buffer, x in zip(buffers, new, strict=True))

    inputs = {"spectrogram": TensorType((config.mels, 2 * config.states), DType.F32)}
    in_place = {i: 1 + i for i in range(len(heard))}
    return trace(
        ENCODE,
        encode,
        inputs | cache_types(heard),
        parameters=model.parameters(),
        in_place=in_place,
    )


def _read(
    model: SpeechModel,
    name: str,
    tokens: int,
    caches: Sequence[CacheSpec],
    heard: Sequence[CacheSpec],
    aligned: Sequence[tuple[int, int]] = (),
) -> Graph:
    """A function that reads tokens.

    A decode returns the logits after its token, and an alignment the scores of the `aligned` heads,
    f32 (A, N, S).
    """
    context, count = model.config.max_context, len(caches)

    def read(ids: Tensor, start: Tensor, *buffers: Tensor) -> tuple[Tensor, ...]:
        layers = [
            LayerCache(buffers=[pair], starts=[start], keys=context + tokens - 1, window=None)
            for pair in _pairs(buffers[:count])
        ]
        sound = [
            AlignedHeard(
                key=key, value=value, heads=tuple(head for at, head in aligned if at == layer)
            )
            for layer, (key, value) in enumerate(_pairs(buffers[count:]))
        ]
        positions = f.consecutive(start, tokens)
        # Padding can be behind the last position.
        positions = ops.minimum(positions, ops.full_like(positions, context - 1))
        x = model(ids, positions, layers, sound)
        updated = tuple(buffer for layer in layers for buffer in layer.buffers[0])
        if name == PREFILL:
            return updated
        if name == DECODE:
            return (model.logits(x), *updated)
        scores = [f.unsqueeze(each, axis=0) for layer in sound for each in layer.scores]
        return (ops.concatenate(*scores, axis=0), *updated)

    inputs = {
        "tokens": TensorType((tokens,), DType.I32),
        "start": TensorType((1,), DType.I32),
        **cache_types(caches),
        **cache_types(heard),
    }
    results = 0 if name == PREFILL else 1
    in_place = {results + i: 2 + i for i in range(count)}
    return trace(name, read, inputs, parameters=model.parameters(), in_place=in_place)


def _pairs(buffers: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(buffers[::2], buffers[1::2], strict=True))
