"""The layers that encoders of the BERT type share. `N` is texts x tokens, `E` the hidden width."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Tensor


class SelfAttention(nn.Module):
    """Attention over the tokens of a text."""

    def __init__(self, config: ModelConfig) -> None:
        self.scale = config.head_dim**-0.5
        heads = (config.hidden, config.heads, config.head_dim)
        self.q_proj = HeadLinear(*heads, bias=True)
        self.k_proj = HeadLinear(*heads, bias=True)
        self.v_proj = HeadLinear(*heads, bias=True)
        self.o_proj = nn.Linear(config.hidden, config.hidden, bias=True)

    def __call__(self, x: Tensor, text: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.o_proj(text.attend(query, key, value, scale=self.scale))


class FeedForward(nn.Module):
    """down(gelu(up(x)))."""

    def __init__(self, config: ModelConfig) -> None:
        self.up_proj = nn.Linear(config.hidden, config.ffn, bias=True)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=True)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.down_proj(f.gelu(self.up_proj(x)))


class EncoderBlock(nn.Module):
    """One layer: attention and MLP, each added to its input and normalized."""

    def __init__(self, config: ModelConfig) -> None:
        self.self_attn = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.mlp = FeedForward(config)
        self.output_norm = nn.LayerNorm(config.hidden, config.norm_eps)

    def __call__(self, h: Tensor, text: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        h = self.attention_norm(h + self.self_attn(h, text))
        return self.output_norm(h + self.mlp(h))


class ScoreHead(nn.Module):
    """x w + b: one number of each row."""

    def __init__(self, inputs: int) -> None:
        self.weight = nn.parameter(1, inputs, dtype=DType.F32)
        self.bias = nn.parameter(1, dtype=DType.F32)

    def __call__(self, x: Tensor) -> Tensor:
        """(B, inputs) -> (B, 1)."""
        y = score(x, self.weight)
        return y + f.along_last(self.bias, y)


def score(x: Tensor, weight: Tensor) -> Tensor:
    """The products of rows (B, E) with the row of a weight (1, E): (B, 1)."""
    products = x * f.along_last(f.flatten(weight), x)
    return f.unsqueeze(ops.reduce_sum(products, axes=(1,)), axis=1)
