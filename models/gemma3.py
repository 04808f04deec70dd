"""Gemma 3 (text): configuration, layers, entry points, and the names of its tensors in files.

Source: "Gemma 3 Technical Report" (2025) and the reference implementation google/gemma_pytorch.
In shape comments `N` is sequences x tokens, `E` the hidden width, `H` query heads, `G` key/value
heads, `D` the width of a head, `R` the rows of a KV cache.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from models.bundle import CacheSpec, EntryPoint
from models.dsl import functions as f
from models.dsl import nn, ops
from models.dsl.graph import Tensor
from models.dsl.trace import trace
from models.dsl.types import DType, TensorType
from models.program import STORAGE, Program, ProgramOptions, StoredTensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from models.dsl.graph import Graph
    from models.gemma3_config import Config

ARCHITECTURE = "gemma3"

RopeTable: TypeAlias = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Span:
    """What one layer sees of one sequence in this step; the same for all layers of a kind.

    rows  i32 (T,): where the new tokens go in the cache
    seen  bool (T, R): which rows each new token attends to
    """

    rows: Tensor
    seen: Tensor


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


class Attention(nn.Module):
    """Grouped-query attention with normalised queries and keys, rotary positions and a cache."""

    def __init__(self, config: Config, layer: int, storage: DType) -> None:
        self.config = config
        self.is_global = config.is_global(layer)
        heads, groups, width = config.heads, config.kv_heads, config.head_dim
        self.q_proj = nn.Linear(config.hidden, heads * width, storage)
        self.k_proj = nn.Linear(config.hidden, groups * width, storage)
        self.v_proj = nn.Linear(config.hidden, groups * width, storage)
        self.o_proj = nn.Linear(heads * width, config.hidden, storage)
        self.q_norm = nn.RMSNorm(width, config.norm_eps)
        self.k_norm = nn.RMSNorm(width, config.norm_eps)

    def __call__(
        self, x: Tensor, rope: RopeTable, spans: list[Span], caches: list[KVCache]
    ) -> tuple[Tensor, list[KVCache]]:
        """x (N, E) holds the new tokens of each sequence, one sequence after the other."""
        query = f.rope(self.q_norm(self._heads(self.q_proj(x))), *rope)  # (N, H, D)
        key = f.rope(self.k_norm(self._heads(self.k_proj(x))), *rope)  # (N, G, D)
        value = self.v_proj(x)  # (N, G * D)
        key = ops.reshape(key, shape=value.shape)
        mixed, updated = [], []
        tokens = x.shape[0] // len(caches)
        for i, (span, cache) in enumerate(zip(spans, caches, strict=True)):
            own = (i * tokens, (i + 1) * tokens)
            cache = cache.update(f.narrow(key, 0, *own), f.narrow(value, 0, *own), span.rows)
            mixed.append(self._attend(f.narrow(query, 0, *own), cache, span))
            updated.append(cache)
        return self.o_proj(ops.concatenate(*mixed, axis=0)), updated

    def _attend(self, query: Tensor, cache: KVCache, span: Span) -> Tensor:
        """Attention of one sequence: query (T, H, D) -> (T, H * D)."""
        query, key, value = (
            ops.reshape(x, shape=(1, *x.shape))
            for x in (query, self._heads(cache.key), self._heads(cache.value))
        )
        mixed = f.scaled_dot_product_attention(
            query, key, value, seen=span.seen, scale=self.config.query_scale
        )  # (1, T, H, D)
        _, tokens, heads, width = mixed.shape
        return ops.reshape(mixed, shape=(tokens, heads * width))

    def _heads(self, x: Tensor) -> Tensor:
        """(rows, heads * D) -> (rows, heads, D)."""
        width = self.config.head_dim
        return ops.reshape(x, shape=(x.shape[0], x.shape[1] // width, width))


class MLP(nn.Module):
    """down(gelu(gate(x)) * up(x))."""

    def __init__(self, config: Config, storage: DType) -> None:
        self.gate_proj = nn.Linear(config.hidden, config.ffn, storage)
        self.up_proj = nn.Linear(config.hidden, config.ffn, storage)
        self.down_proj = nn.Linear(config.ffn, config.hidden, storage)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.down_proj(f.gelu_tanh(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer: attention and MLP, each normalised before and after."""

    def __init__(self, config: Config, layer: int, storage: DType) -> None:
        self.input_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = Attention(config, layer, storage)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.pre_feedforward_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.mlp = MLP(config, storage)
        self.post_feedforward_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)

    def __call__(
        self, h: Tensor, rope: RopeTable, spans: list[Span], caches: list[KVCache]
    ) -> tuple[Tensor, list[KVCache]]:
        """h (N, E) -> (N, E), and the caches with the new tokens in them."""
        attended, caches = self.self_attn(self.input_layernorm(h), rope, spans, caches)
        h = h + self.post_attention_layernorm(attended)
        h = h + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(h)))
        return h, caches


class Gemma3(nn.Module):
    """The whole model; the embedding table is also the output head."""

    def __init__(self, config: Config, options: ProgramOptions) -> None:
        storage = STORAGE[options.precision]
        self.config = config
        self.options = options
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden, storage)
        self.layers = [Block(config, layer, storage) for layer in range(config.layers)]
        self.norm = nn.RMSNorm(config.hidden, config.norm_eps)

    def __call__(
        self, tokens: Tensor, starts: list[Tensor], caches: list[list[KVCache]]
    ) -> tuple[Tensor, list[list[KVCache]]]:
        """Read new tokens: i32 (N,), the same number T of each sequence, one after the other.

        `starts` holds the position of each sequence's first new token, i32 (1,); `caches` are
        indexed by layer, then by sequence. Returns the hidden state (N, E), not yet normalised,
        and the caches with the new tokens in them.
        """
        each = tokens.shape[0] // len(starts)
        positions = [_count_up(start, each) for start in starts]
        h = self.embed_tokens(tokens) * math.sqrt(self.config.hidden)
        everywhere = ops.concatenate(*positions, axis=0)
        ropes = {
            kind: f.rope_table(everywhere, self.config.head_dim, base=base, factor=factor)
            for kind, base, factor in (
                (False, self.config.local_rope_base, 1.0),
                (True, self.config.global_rope_base, self.config.global_rope_factor),
            )
        }
        spans = {
            kind: [self._span(start, each, is_global=kind) for start in starts]
            for kind in (False, True)
        }
        updated = []
        for block, layer_caches in zip(self.layers, caches, strict=True):
            kind = block.self_attn.is_global
            h, layer_caches = block(h, ropes[kind], spans[kind], layer_caches)
            updated.append(layer_caches)
        return h, updated

    def logits(self, h: Tensor) -> Tensor:
        """Hidden state (N, E) -> logits (N, V)."""
        return self.embed_tokens.logits(self.norm(h))

    def cache_rows(self, *, is_global: bool) -> int:
        """R of a global or a sliding layer."""
        context = self.options.context
        span = context if is_global else min(self.config.window, context)
        return span + self.options.chunk

    def _span(self, start: Tensor, tokens: int, *, is_global: bool) -> Span:
        rows = self.cache_rows(is_global=is_global)
        positions = _count_up(start, tokens)
        newest = f.trailing(start + (tokens - 1), (rows,))
        # Row r holds the newest position p <= newest with p mod R == r; if negative, none yet.
        age = _modulo(newest - ops.iota(shape=(rows,), axis=0, dtype=DType.I32) + rows, rows)
        window = None if is_global else self.config.window
        return Span(rows=_modulo(positions, rows), seen=f.visible(positions, newest - age, window))


def _count_up(start: Tensor, tokens: int) -> Tensor:
    """start, start + 1, ...: i32 (1,) -> i32 (tokens,)."""
    ahead = ops.iota(shape=(tokens,), axis=0, dtype=DType.I32)
    return f.trailing(start, (tokens,)) + ahead


def _modulo(x: Tensor, n: int) -> Tensor:
    """x mod n for x >= 0."""
    return ops.remainder(x, ops.full_like(x, n))


# --- entry points


def program(config: Config, options: ProgramOptions) -> Program:
    """Trace every entry point. Allocates no weights and needs none."""
    model = Gemma3(config, options)
    parameters = model.parameters()
    caches = tuple(
        CacheSpec(
            name=f"layers.{layer}.{what}",
            rows=model.cache_rows(is_global=config.is_global(layer)),
            width=config.kv_heads * config.head_dim,
            dtype="f32",
        )
        for layer in range(config.layers)
        for what in ("key", "value")
    )
    points = [
        EntryPoint(name=f"prefill_{tokens}", kind="prefill", batch=1, tokens=tokens)
        for tokens in options.prefill_tokens
    ] + [
        EntryPoint(name=f"decode_{batch}", kind="decode", batch=batch, tokens=1)
        for batch in options.decode_batches
    ]
    return Program(
        vocab_size=config.vocab_size,
        caches=caches,
        entry_points=tuple((point, _trace(model, point, caches, parameters)) for point in points),
        parameters={name: tensor.type for name, tensor in parameters.items()},
    )


def _trace(
    model: Gemma3,
    point: EntryPoint,
    caches: tuple[CacheSpec, ...],
    parameters: Mapping[str, Tensor],
) -> Graph:
    positions = "start" if point.kind == "prefill" else "positions"
    inputs = {
        "tokens": TensorType((point.batch * point.tokens,), DType.I32),
        positions: TensorType((point.batch,), DType.I32),
    }
    inputs |= {
        f"slot{slot}.{spec.name}": TensorType((spec.rows, spec.width), DType.named(spec.dtype))
        for slot in range(point.batch)
        for spec in caches
    }

    def prefill(tokens: Tensor, start: Tensor, *buffers: Tensor) -> tuple[Tensor, ...]:
        _, updated = model(tokens, [start], _by_layer(buffers, point.batch))
        return tuple(_by_slot(updated, point.batch))

    def decode(tokens: Tensor, positions: Tensor, *buffers: Tensor) -> tuple[Tensor, ...]:
        starts = [f.narrow(positions, 0, i, i + 1) for i in range(point.batch)]
        h, updated = model(tokens, starts, _by_layer(buffers, point.batch))
        return (model.logits(h), *_by_slot(updated, point.batch))

    step, results = (prefill, 0) if point.kind == "prefill" else (decode, 1)
    in_place = {results + i: 2 + i for i in range(point.batch * len(caches))}
    return trace(point.name, step, inputs, parameters=parameters, in_place=in_place)


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


# --- names in files

_GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_feedforward_layernorm": "post_ffw_norm",
    "embed_tokens": "token_embd",
    "norm": "output_norm",
}
# The larger models come with a vision tower, and with the text model one level down.
_HUGGING_FACE_PREFIXES = ("model.", "model.language_model.", "language_model.model.")
_NOT_TEXT = (
    "model.vision_tower.",
    "vision_tower.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
)


def stored_tensor(parameter: str, names: tuple[str, ...], *, gguf: bool) -> StoredTensor:
    """Where a parameter lies in a file with these tensor names.

    A norm multiplies by 1 + w. GGUF files store 1 + w, Hugging Face's store w.
    """
    if gguf:
        path, _, kind = parameter.rpartition(".")
        if path.startswith("layers."):
            _, layer, inner = path.split(".", 2)
            return StoredTensor(f"blk.{layer}.{_GGUF_NAMES[inner]}.{kind}")
        return StoredTensor(f"{_GGUF_NAMES[path]}.{kind}")
    offset = 1.0 if parameter.endswith("norm.weight") else 0.0
    found = [prefix + parameter for prefix in _HUGGING_FACE_PREFIXES if prefix + parameter in names]
    return StoredTensor(found[0] if found else f"model.{parameter}", offset)


def is_other_part(tensor: str) -> bool:
    """Whether a tensor belongs to a part of the model that Hearth does not run (vision)."""
    return tensor.startswith(_NOT_TEXT)


def describe(config: Config) -> dict[str, Any]:
    """The configuration as the manifest holds it."""
    return asdict(config)
