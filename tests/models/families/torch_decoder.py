"""Decoders in PyTorch that transformers does not have; their parameters have the names of folders.

In shape comments `T` is tokens, `E` the hidden width, `H` heads, `D` the width of a head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn
from torch.nn.functional import silu

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Config = Mapping[str, Any]


class Module(nn.Module):  # type: ignore[misc]
    """PyTorch's, whose types are not known here."""


class Norm(Module):
    """RMSNorm."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(width)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows x (..., width), normalized."""
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def linear(inputs: int, outputs: int, *, bias: bool = False) -> nn.Linear:
    """A matrix."""
    return nn.Linear(inputs, outputs, bias=bias)


class MLP(Module):
    """A gated MLP."""

    def __init__(
        self,
        hidden: int,
        width: int,
        activation: Callable[[torch.Tensor], torch.Tensor] = silu,
        names: Sequence[str] = ("gate_proj", "up_proj", "down_proj"),
    ) -> None:
        super().__init__()
        self.activation, self.names = activation, names
        for name, shape in zip(names, [(hidden, width)] * 2 + [(width, hidden)], strict=True):
            setattr(self, name, linear(*shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        gate, up, down = (getattr(self, name) for name in self.names)
        result: torch.Tensor = down(self.activation(gate(x)) * up(x))
        return result


def rotated(
    x: torch.Tensor, base: float, width: int | None = None, *, neighbors: bool = False
) -> torch.Tensor:
    """Heads (H, T, D) whose first `width` columns are turned by their positions."""
    width = width or x.shape[-1]
    exponents = torch.arange(0, width, 2, dtype=torch.float32) / width
    angles = torch.arange(x.shape[1])[:, None] * base**-exponents
    turning, still = x[..., :width], x[..., width:]
    if neighbors:
        first, second = turning[..., 0::2], turning[..., 1::2]
    else:
        first, second = turning.chunk(2, -1)
    turned = (
        first * angles.cos() - second * angles.sin(),
        second * angles.cos() + first * angles.sin(),
    )
    if neighbors:
        return torch.cat([torch.stack(turned, -1).flatten(-2), still], -1)
    return torch.cat([*turned, still], -1)


def attended(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None = None
) -> torch.Tensor:
    """Heads (H, T, D), of fewer keys and values, with a window or without -> (T, H, D)."""
    shared = query.shape[0] // key.shape[0]
    key, value = (part.repeat_interleave(shared, 0) for part in (key, value))
    scores = torch.matmul(query, key.transpose(1, 2)) * query.shape[-1] ** -0.5
    position = torch.arange(query.shape[1])
    distance = position[:, None] - position
    hidden = (distance < 0) | (distance >= (window or query.shape[1]))
    mixed = torch.matmul(scores.masked_fill(hidden, -torch.inf).softmax(-1), value)
    return mixed.transpose(0, 1)


class Attention(Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        self.width = config["head_dim"]
        self.make_projections(config["hidden_size"])

    def make_projections(self, hidden: int) -> None:
        """Make the matrices."""
        heads, groups = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        self.q_proj = linear(hidden, heads * self.width)
        self.k_proj = linear(hidden, groups * self.width)
        self.v_proj = linear(hidden, groups * self.width)
        self.o_proj = linear(heads * self.width, hidden)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """Rows (T, H D) -> heads (H, T, D)."""
        return x.unflatten(-1, (-1, self.width)).transpose(0, 1)

    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(T, E) -> queries, keys and values (H, T, D)."""
        query, key, value = (self.split(f(x)) for f in (self.q_proj, self.k_proj, self.v_proj))
        return self.turned(query), self.turned(key), value

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """Heads with rotary positions."""
        return rotated(x, self.config["rope_theta"])

    @property
    def window(self) -> int | None:
        """The keys that a token sees."""
        return None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        mixed = attended(*self.heads(x), self.window)
        return self.output(x, mixed)

    def output(self, _: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """The inputs (T, E) and results (T, H, D) of heads -> (T, E)."""
        result: torch.Tensor = self.o_proj(mixed.flatten(1))
        return result


class Block(Module):
    """One layer."""

    attention: type[Attention] = Attention

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        hidden, eps = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = Norm(hidden, eps)
        self.self_attn = self.attention(config, layer)
        self.post_attention_layernorm = Norm(hidden, eps)
        self.make_mlp(config, layer)

    def make_mlp(self, config: Config, _: int) -> None:
        """Make what follows attention."""
        self.mlp = MLP(config["hidden_size"], config["intermediate_size"])

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        h = h + self.self_attn(self.input_layernorm(h))
        result: torch.Tensor = h + self.mlp(self.post_attention_layernorm(h))
        return result


class Inner(Module):
    """A model without its head."""

    def __init__(self, config: Config, block: type[Block]) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        layers = range(config["num_hidden_layers"])
        self.layers = nn.ModuleList(block(config, layer) for layer in layers)
        self.norm = Norm(config["hidden_size"], config["rms_norm_eps"])


class Decoder(Module):
    """A model: Llama, from which others differ.

    name     in config.json; empty: the name of the class
    renamed  parts of names in folders, by the names here
    """

    block: type[Block] = Block
    name = ""
    renamed: ClassVar[Mapping[str, str]] = {}

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Inner(config, self.block)
        if not config.get("tie_word_embeddings"):
            self.lm_head = linear(config["hidden_size"], config["vocab_size"])

    def states(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (T,) -> normalized states (T, E)."""
        h = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            h = layer(h)
        result: torch.Tensor = self.model.norm(h)
        return result

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (T,) -> logits (T, V)."""
        x, tied = self.states(tokens), self.config.get("tie_word_embeddings")
        weight = self.model.embed_tokens.weight if tied else self.lm_head.weight
        return torch.nn.functional.linear(x, weight)


def mixed_experts(
    x: torch.Tensor,
    experts: Sequence[Callable[[torch.Tensor], torch.Tensor]],
    factors: torch.Tensor,
    chosen: torch.Tensor,
) -> torch.Tensor:
    """The sum of what the experts of each row of x (T, E) give, times their factors (T, C)."""
    return torch.stack(
        [
            torch.stack(
                [
                    factor * experts[expert](row)
                    for factor, expert in zip(of_row, choice, strict=True)
                ]
            ).sum(0)
            for row, of_row, choice in zip(x, factors, chosen.tolist(), strict=True)
        ]
    )
