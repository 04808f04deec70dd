"""Models of winter 2026 in PyTorch that transformers does not have: see torch_decoder.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn
from torch.nn.functional import silu
from typing_extensions import override

from tests.models.families.torch_decoder import (
    MLP,
    Attention,
    Block,
    Decoder,
    Norm,
    linear,
    mixed_experts,
    rotated,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.models.families.torch_decoder import Config

_LIMIT = 7.0


class MapleAttention(Attention):
    """Normalizes heads, of which a half turns, in layers with a window."""

    @override
    def make_projections(self, hidden: int) -> None:
        super().make_projections(hidden)
        self.q_norm, self.k_norm = (Norm(self.width, self.config["rms_norm_eps"]) for _ in "qk")

    @override
    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        query, key, value = (self.split(f(x)) for f in (self.q_proj, self.k_proj, self.v_proj))
        return self.turned(self.q_norm(query)), self.turned(self.k_norm(key)), value

    @override
    def turned(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.window is None else rotated(x, self.config["rope_theta"], self.width // 2)

    @property
    @override
    def window(self) -> int | None:
        slides = self.config["layer_types"][self.layer] == "sliding_attention"
        return self.config["sliding_window"] if slides else None


class MapleMLP(MLP):
    """A gated MLP with limits, which the large inputs of the tests reach."""

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up, down = (getattr(self, name) for name in self.names)
        hidden = silu(gate(x).clamp(max=_LIMIT)) * up(x).clamp(-_LIMIT, _LIMIT)
        result: torch.Tensor = down(hidden)
        return result


class MapleExperts(nn.Module):  # type: ignore[misc]
    """Experts by a softmax of all."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, hidden, count = config, config["hidden_size"], config["num_experts"]
        self.gate = linear(hidden, count)
        experts = (MapleMLP(hidden, config["moe_intermediate_size"]) for _ in range(count))
        self.experts = nn.ModuleList(experts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        factors, chosen = self.gate(x).softmax(-1).topk(self.config["num_experts_per_tok"], -1)
        factors = factors / factors.sum(-1, keepdim=True)
        return mixed_experts(x, [*self.experts], factors, chosen)


class MapleBlock(Block):
    """One layer."""

    attention = MapleAttention

    @override
    def make_mlp(self, config: Config, _: int) -> None:
        self.mlp = MapleExperts(config)


class Maple(Decoder):
    """By modeling_maple.py of maple-preview, with the limits that llama.cpp has."""

    block = MapleBlock
    renamed: ClassVar[Mapping[str, str]] = {"embed_tokens": "word_embeddings"}
