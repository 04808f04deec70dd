"""Gemma 3 in PyTorch, in float64, for the gradients by what its matrices compute."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.models.families.gemma3 import Config

    Array = NDArray[Any]


def squares_of_gradients(
    config: Config, weights: Mapping[str, Array], tokens: Sequence[int], arriving: Array
) -> dict[str, Array]:
    """|g|^2 f64 (T,) of each matrix of the layers, for the gradient at the logits (T, V)."""
    model = _Gemma3(config, weights)
    (model.logits(tokens) * torch.tensor(arriving)).sum().backward()
    return {name: (y.grad**2).sum(dim=1).numpy() for name, y in model.products.items()}


class _Gemma3:
    def __init__(self, config: Config, weights: Mapping[str, Array]) -> None:
        self.config = config
        self.weights = {name: torch.tensor(array).double() for name, array in weights.items()}
        self.products: dict[str, torch.Tensor] = {}

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        table = self.weights["embed_tokens.weight"]
        h = table[torch.tensor(np.array(tokens, np.int64))] * math.sqrt(self.config.hidden)
        for i in range(self.config.layers):
            layer = f"layers.{i}"
            x = self.attention(i, self.norm(h, f"{layer}.input_layernorm"))
            h = h + self.norm(x, f"{layer}.post_attention_layernorm")
            x = self.norm(h, f"{layer}.pre_feedforward_layernorm")
            gate = self.product(x, f"{layer}.mlp.gate_proj")
            gate = torch.nn.functional.gelu(gate, approximate="tanh")
            x = self.product(
                gate * self.product(x, f"{layer}.mlp.up_proj"), f"{layer}.mlp.down_proj"
            )
            h = h + self.norm(x, f"{layer}.post_feedforward_layernorm")
        return self.norm(h, "norm") @ table.T

    def product(self, x: torch.Tensor, name: str) -> torch.Tensor:
        y = (x @ self.weights[f"{name}.weight"].T).requires_grad_()
        y.retain_grad()
        self.products[f"{name}.weight"] = y
        return y

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        mean = (x**2).mean(dim=-1, keepdim=True)
        return x * (mean + self.config.norm_eps) ** -0.5 * self.weights[f"{name}.weight"]

    def attention(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        config, name = self.config, f"layers.{layer}.self_attn"
        query, key, value = (
            self.product(x, f"{name}.{part}_proj").reshape(len(x), -1, config.head_dim)
            for part in "qkv"
        )
        window = config.windows[layer]
        query, key = (
            self.rotated(self.norm(part, f"{name}.{norm}"), is_global=window is None)
            for part, norm in ((query, "q_norm"), (key, "k_norm"))
        )
        key, value = (
            part.repeat_interleave(config.heads // config.kv_heads, dim=1) for part in (key, value)
        )
        scores = torch.einsum("qhd,khd->hqk", query, key) * config.query_scale
        age = torch.arange(len(x))[:, None] - torch.arange(len(x))
        seen = (age >= 0) & (age < (window or len(x)))
        shares = torch.softmax(scores.masked_fill(~seen, -math.inf), dim=2)
        mixed = torch.einsum("hqk,khd->qhd", shares, value).reshape(len(x), -1)
        return self.product(mixed, f"{name}.o_proj")

    def rotated(self, x: torch.Tensor, *, is_global: bool) -> torch.Tensor:
        config = self.config
        base = config.rope_base if is_global else config.local_rope_base
        factor = config.rope_factor if is_global else 1.0
        steps = torch.arange(0, config.head_dim, 2).double() / config.head_dim
        angles = torch.outer(torch.arange(len(x)).double(), base**-steps / factor)[:, None]
        first, second = x.chunk(2, dim=2)
        cosine, sine = angles.cos(), angles.sin()
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=2)
