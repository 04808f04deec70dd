"""The layers of Llama and similar models. An architecture replaces the layers in which it differs.

In shape comments `N` is sequences x tokens, `E` the hidden width, `H` query heads, `G` key/value
heads, `D` the width of a head, `V` the vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from typing_extensions import override

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearthd.models.decoder.config.decoder_config import DecoderConfig
    from hearthd.models.decoder.kv_cache import LayerCache, StateRows
    from hearthd.models.dsl.graph import Tensor


class RopeTable(NamedTuple):
    """Rotary positions.

    cosine, sine  of the angles at every position, each f32 (N, D / 2)
    query_scale   multiplies the queries at every position, f32 (N,); None: they are not scaled
    """

    cosine: Tensor
    sine: Tensor
    query_scale: Tensor | None = None


class Layer(Protocol):
    """A layer, or its part that reads other tokens."""

    def __call__(self, x: Tensor, rope: RopeTable | None, cache: LayerCache, /) -> Tensor:
        """(N, E) -> (N, E)."""


class HeadLinear(nn.Linear):
    """x W^T + b, split into heads."""

    def __init__(self, inputs: int, heads: int, width: int, *, bias: bool = False) -> None:
        super().__init__(inputs, heads * width, bias=bias)
        self.heads = (heads, width)

    @override
    def __call__(self, x: Tensor) -> Tensor:
        """(N, inputs) -> (N, heads, width)."""
        y = f.split_heads(f.linear(x, self.weight), self.heads[1])
        if self.bias is None:
            return y
        bias = ops.reshape(self.bias, shape=self.heads)
        return y + ops.broadcast(bias, shape=y.shape, axes=(1, 2))


class Attention(nn.Module):
    """Grouped-query attention with rotary positions.

    sinks  (H,), or None: see `f.scaled_dot_product_attention`
    """

    sinks: Tensor | None = None

    def __init__(
        self, config: DecoderConfig, *, scale: float | None = None, cap: float | None = None
    ) -> None:
        """`scale` multiplies q k^T, by default D^-0.5; `cap` limits scores: see `f.soft_cap`."""
        width, bias = config.head_dim, config.attention_bias
        self.scale, self.cap = scale or width**-0.5, cap
        self.q_proj = HeadLinear(config.hidden, config.heads, width, bias=bias)
        self.k_proj = HeadLinear(config.hidden, config.kv_heads, width, bias=bias)
        self.v_proj = HeadLinear(config.hidden, config.kv_heads, width, bias=bias)
        self.o_proj = nn.Linear(config.heads * width, config.hidden, bias=config.output_bias)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, E) -> queries (N, H, D), keys and values (N, G, D), before rotation."""
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)

    def __call__(self, x: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E); without a table, heads have no positions."""
        query, key, value = self.heads(x)
        query, key = scaled_by_position(rotated(query, rope), rope), rotated(key, rope)
        mixed = cache.attend(query, key, value, scale=self.scale, cap=self.cap, sinks=self.sinks)
        return self.output(mixed)

    def output(self, mixed: Tensor) -> Tensor:
        """The results of the heads (N, H D) -> (N, E)."""
        return self.o_proj(mixed)


class NormedAttention(Attention):
    """Attention that normalizes each head of queries and keys."""

    def __init__(self, config: DecoderConfig, *, scale: float | None = None) -> None:
        super().__init__(config, scale=scale)
        self.q_norm = nn.RMSNorm(config.head_dim, config.norm_eps)
        self.k_norm = nn.RMSNorm(config.head_dim, config.norm_eps)

    @override
    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, E) -> queries (N, H, D), keys and values (N, G, D), before rotation."""
        query, key, value = super().heads(x)
        return self.q_norm(query), self.k_norm(key), value


class GatedAttention(NormedAttention):
    """Attention whose result is multiplied by a gate.

    One projection gives queries and gates: each head of queries is followed by its gate.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.q_proj = HeadLinear(
            config.hidden, 2 * config.heads, config.head_dim, bias=config.attention_bias
        )

    @override
    def __call__(self, x: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        both = self.q_proj(x)
        query, gate = both[:, 0::2], both[:, 1::2]
        query, key = rotated(self.q_norm(query), rope), rotated(self.k_norm(self.k_proj(x)), rope)
        mixed = cache.attend(query, key, self.v_proj(x), scale=self.scale)
        gated = f.gated_heads(gate, f.split_heads(mixed, gate.shape[2]))
        return self.o_proj(f.flatten(gated, first=1))


class FusedAttention(Attention):
    """Attention with one projection to queries, keys and values."""

    def __init__(self, config: DecoderConfig) -> None:
        width = config.head_dim
        self.scale, self.cap = width**-0.5, None
        self.counts = (config.heads, config.kv_heads)
        count = config.heads + 2 * config.kv_heads
        self.qkv_proj = HeadLinear(config.hidden, count, width, bias=config.attention_bias)
        self.o_proj = nn.Linear(config.heads * width, config.hidden, bias=config.output_bias)

    @override
    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, E) -> queries (N, H, D), keys and values (N, G, D), before rotation."""
        heads, groups = self.counts
        y = self.qkv_proj(x)
        return (
            f.narrow(y, 1, 0, heads),
            f.narrow(y, 1, heads, heads + groups),
            f.narrow(y, 1, heads + groups, heads + 2 * groups),
        )


class MLP(nn.Module):
    """down(activation(gate(x)) * up(x)) (Shazeer, 2020)."""

    def __init__(
        self, config: DecoderConfig, activation: Callable[[Tensor], Tensor] = f.silu
    ) -> None:
        self.activation, bias = activation, config.mlp_bias
        self.gate_proj = nn.Linear(config.hidden, config.ffn, bias=bias)
        self.up_proj = nn.Linear(config.hidden, config.ffn, bias=bias)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=bias)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


# Activations of gated MLPs, by their names in the files of models.
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"gelu": f.gelu, "silu": f.silu}


class FusedMLP(nn.Module):
    """down(activation(gate) * up), where one projection gives gate and up."""

    def __init__(
        self, config: DecoderConfig, activation: Callable[[Tensor], Tensor] = f.silu
    ) -> None:
        self.activation = activation
        self.gate_up_proj = nn.Linear(config.hidden, 2 * config.ffn)
        self.down_proj = nn.Linear(config.ffn, config.hidden)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        y = self.gate_up_proj(x)
        width = y.shape[1] // 2
        gate, up = f.narrow(y, 1, 0, width), f.narrow(y, 1, width, 2 * width)
        return self.down_proj(self.activation(gate) * up)


class PlainMLP(nn.Module):
    """down(activation(up(x))), without a gate."""

    def __init__(self, config: DecoderConfig, activation: Callable[[Tensor], Tensor]) -> None:
        self.activation = activation
        self.up_proj = nn.Linear(config.hidden, config.ffn, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=config.mlp_bias)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.down_proj(self.activation(self.up_proj(x)))


class Scale(nn.Module):
    """One number that multiplies hidden states."""

    def __init__(self) -> None:
        self.weight = nn.parameter(1, dtype=DType.F32)

    def __call__(self, h: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return h * f.trailing(self.weight, h.shape)


def normalized(x: Tensor, eps: float) -> Tensor:
    """x (..., D) over the root of its mean square."""
    return f.rms_norm(x, ops.full(shape=x.shape[-1:], value=1.0, dtype=DType.F32), eps=eps)


class Block(nn.Module):
    """One layer: attention and MLP, each normalized before."""

    def __init__(
        self,
        config: DecoderConfig,
        self_attn: Layer,
        mlp: Callable[[Tensor], Tensor],
        norm: Callable[[int, float], Callable[[Tensor], Tensor]] = nn.RMSNorm,
    ) -> None:
        """`norm` makes a norm of a width and an epsilon."""
        self.input_layernorm = norm(config.hidden, config.norm_eps)
        self.self_attn = self_attn
        self.post_attention_layernorm = norm(config.hidden, config.norm_eps)
        self.mlp = mlp

    def __call__(self, h: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        x = self.input_layernorm(h)
        h = h + self.self_attn(x, rope, cache)
        x = self.post_attention_layernorm(h)
        return h + self.mlp(x)


class ParallelBlock(nn.Module):
    """One layer: attention and MLP side by side, after one norm or each after its own."""

    def __init__(
        self,
        config: DecoderConfig,
        self_attn: Layer,
        mlp: Callable[[Tensor], Tensor],
        norm: Callable[[int, float], Callable[[Tensor], Tensor]] = nn.LayerNorm,
        *,
        norms: Literal[1, 2] = 1,
    ) -> None:
        """`norm` makes a norm of a width and an epsilon."""
        self.input_layernorm = norm(config.hidden, config.norm_eps)
        self.self_attn = self_attn
        self.post_attention_layernorm = None if norms == 1 else norm(config.hidden, config.norm_eps)
        self.mlp = mlp

    def __call__(self, h: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        x = self.input_layernorm(h)
        norm = self.post_attention_layernorm
        return h + self.self_attn(x, rope, cache) + self.mlp(x if norm is None else norm(h))


class DecoderModel(nn.Module):
    """The whole model; the output head is a matrix of its own, or the embedding table."""

    def __init__(self, config: DecoderConfig, blocks: Sequence[Layer]) -> None:
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden)
        self.layers: Sequence[Layer] = list(blocks)
        self.norm: Callable[[Tensor], Tensor] = nn.RMSNorm(config.hidden, config.norm_eps)
        self.lm_head = None if config.tied else nn.Linear(config.hidden, config.vocab_size)

    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens i32 (N,) -> hidden states (N, E)."""
        return self.embed_tokens(tokens)

    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        """For each layer, the rotary table of positions i32 (N,), or None for no rotation."""
        config = self.config
        everywhere = local = rope_table(config, positions)
        if config.local is not config:
            local = rope_table(config.local, positions)
        tables = [
            everywhere if self.window(layer) is None else local for layer in range(config.layers)
        ]
        return [table if config.rotates(layer) else None for layer, table in enumerate(tables)]

    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], h: Tensor | None = None
    ) -> Tensor:
        """Tokens i32 (N,) at positions i32 (N,) -> normalized hidden states (N, E).

        The first layer reads `h` (N, E); None for `embed(tokens)`. Further parts of `h` (N, n E)
        are added to the results of the first layers (DeepStack: Meng et al., 2024).
        """
        h = self.embed(tokens) if h is None else h
        h, *added = parts_of(h, self.config.hidden)
        ropes = self.rope_tables(positions)
        for layer, (block, rope, cache) in enumerate(zip(self.layers, ropes, caches, strict=True)):
            h = block(h, rope, cache)
            if layer < len(added):
                h = h + added[layer]
        return self.norm(h)

    def logits(self, x: Tensor) -> Tensor:
        """Normalized hidden states (N, E) -> logits (N, V)."""
        return self.embed_tokens.logits(x) if self.lm_head is None else self.lm_head(x)

    def window(self, layer: int) -> int | None:
        """Keys that a token sees in a layer, itself included; None for all of them."""
        return self.config.windows[layer] if self.config.windows else None

    def cache_width(self, layer: int) -> int:
        """The width of each of the two caches of a layer."""
        shape = self.config.layer(layer)
        return shape.kv_heads * shape.head_dim

    def cache_heads(self, layer: int) -> int:
        """The heads in a row of each of the two caches of a layer; 0 if they hold no heads."""
        return self.config.layer(layer).kv_heads

    def states(self, _: int) -> tuple[StateRows, ...]:
        """The states that a layer keeps of a sequence; none if it keeps a row of each position."""
        return ()


def parts_of(rows: Tensor, width: int) -> tuple[Tensor, ...]:
    """Rows (N, n width) as n parts (N, width)."""
    count = rows.shape[1] // width
    return (rows,) if count == 1 else f.chunk(rows, count, axis=1)


def rope_table(config: DecoderConfig, positions: Tensor, width: int | None = None) -> RopeTable:
    """The table of a configuration for positions i32 (N,); `width` columns of a head turn."""
    cosine, sine = f.rope_table(
        positions,
        width or config.head_dim,
        base=config.rope_base,
        factor=config.rope_divisors or config.rope_factor,
    )
    if config.rope_magnitude == 1.0:
        return RopeTable(cosine, sine)
    return RopeTable(cosine * config.rope_magnitude, sine * config.rope_magnitude)


def rotated(x: Tensor, rope: RopeTable | None) -> Tensor:
    """Rotate the first columns of heads (N, H, D): the columns that the table has."""
    return x if rope is None else f.rope(x, rope.cosine, rope.sine)


def scaled_by_position(query: Tensor, rope: RopeTable | None) -> Tensor:
    """Queries (N, H, D), times the number that the table has for their position."""
    if rope is None or rope.query_scale is None:
        return query
    return query * ops.broadcast(rope.query_scale, shape=query.shape, axes=(0,))
