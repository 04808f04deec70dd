"""Nomic's BERT with experts in PyTorch: transformers has no such model.

The names of modules, and the shapes of the experts' matrices, are the published ones: each expert
multiplies with the transposed rows of `w1` that are its own, and then with its rows of `w2`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

_FIXED = {
    "activation_function": "gelu", "causal": False, "prenorm": False, "parallel_block": False,
    "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True, "ffn_div": 1,
    "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
    "moe_normalize_expert_weights": False, "num_shared_experts": 0, "moe_impl": "megablocks",
    "expert_choice_router": False, "add_pooling_layer": False, "max_trained_positions": 2048,
    "router_aux_loss_coef": 0.1, "moe_resid_pdrop": 0.0, "type_vocab_size": 1,
}  # fmt: skip


class NomicMoeConfig(PreTrainedConfig):  # type: ignore[misc]
    """The keys of published files."""

    model_type = "nomic_bert"

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{**_FIXED, **arguments})


class _Experts(nn.Module):  # type: ignore[misc]
    def __init__(self, config: Any) -> None:
        super().__init__()
        rows, width = config.num_experts * config.n_inner, config.n_embd
        self.mlp = nn.Module()
        self.mlp.w1 = nn.Parameter(torch.empty(rows, width))
        self.mlp.w2 = nn.Parameter(torch.empty(rows, width))
        self.bias = nn.Parameter(torch.empty(width))


class _MixtureOfExperts(nn.Module):  # type: ignore[misc]
    """The experts with the largest probabilities, times these, and a bias of their sum."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.count, self.chosen = config.num_experts, config.moe_top_k
        self.router = nn.Module()
        self.router.layer = nn.Linear(config.n_embd, config.num_experts, bias=False)
        self.experts = _Experts(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        factors, chosen = self.router.layer(x).softmax(-1).topk(self.chosen, dim=-1)
        w1, w2 = (w.view(self.count, -1, x.shape[1]) for w in self.experts.mlp.parameters())
        sums = []
        for row, row_factors, experts in zip(x, factors, chosen, strict=True):
            outputs = [nn.functional.gelu(row @ w1[i].T) @ w2[i] for i in experts]
            sums.append((torch.stack(outputs) * row_factors[:, None]).sum(0))
        return torch.stack(sums) + self.experts.bias


class _Mlp(nn.Module):  # type: ignore[misc]
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.n_embd, config.n_inner)
        self.fc2 = nn.Linear(config.n_inner, config.n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        y: torch.Tensor = self.fc2(nn.functional.gelu(self.fc1(x)))
        return y


class _Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, config: Any, *, routed: bool) -> None:
        super().__init__()
        width = config.n_embd
        self.heads, self.base = config.n_head, config.rotary_emb_base
        self.attn = nn.Module()
        self.attn.Wqkv = nn.Linear(width, 3 * width)
        self.attn.out_proj = nn.Linear(width, width)
        self.mlp = _MixtureOfExperts(config) if routed else _Mlp(config)
        self.norm1 = nn.LayerNorm(width, config.layer_norm_epsilon)
        self.norm2 = nn.LayerNorm(width, config.layer_norm_epsilon)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        heads = self.attn.Wqkv(h).view(len(h), 3, self.heads, -1).permute(1, 2, 0, 3)
        query, key = (_rotated(part, self.base) for part in heads[:2])
        weights = (query @ key.transpose(1, 2) / query.shape[-1] ** 0.5).softmax(-1)
        mixed = (weights @ heads[2]).transpose(0, 1).reshape(len(h), -1)
        h = self.norm1(h + self.attn.out_proj(mixed))
        normed: torch.Tensor = self.norm2(h + self.mlp(h))
        return normed


def _rotated(x: torch.Tensor, base: float) -> torch.Tensor:
    """Heads (H, T, D): the pair (i, i + D / 2) turns by position / base^(2 i / D)."""
    half = x.shape[2] // 2
    angles = torch.arange(x.shape[1])[:, None] / base ** (torch.arange(half) / half)
    first, second = x.split(half, dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


class NomicMoeModel(PreTrainedModel):  # type: ignore[misc]
    """Hidden states of a text."""

    config_class = NomicMoeConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embeddings = nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(config.vocab_size, config.n_embd)
        self.embeddings.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.n_embd)
        self.emb_ln = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.encoder = nn.Module()
        step = config.moe_every_n_layers
        self.encoder.layers = nn.ModuleList(
            [_Layer(config, routed=i % step == 1) for i in range(config.n_layer)]
        )
        self.post_init()

    def forward(self, input_ids: torch.Tensor) -> SimpleNamespace:
        """Tokens (1, T) -> `last_hidden_state` (1, T, E)."""
        parts: Any = self.embeddings
        h = self.emb_ln(parts.word_embeddings(input_ids[0]) + parts.token_type_embeddings.weight[0])
        for layer in self.encoder.layers:
            h = layer(h)
        return SimpleNamespace(last_hidden_state=h[None])
