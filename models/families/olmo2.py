"""OLMo 2: Llama with norms after attention and MLP, and of all queries and keys together.

Source: "2 OLMo 2 Furious" (2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import MLP, Attention, DecoderModel
from hearthd.models.decoder.tensor_names import GGUF_NAMES_WITH_NORMS_AFTER, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


class Olmo2Attention(Attention):
    """Attention of which queries and keys are normalized before they are split into heads."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.width = config.head_dim
        self.q_norm = nn.RMSNorm(config.heads * self.width, config.norm_eps)
        self.k_norm = nn.RMSNorm(config.kv_heads * self.width, config.norm_eps)

    @override
    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, E) -> queries (N, H, D), keys and values (N, G, D), before rotation."""
        query = self.q_norm(f.linear(x, self.q_proj.weight, self.q_proj.bias))
        key = self.k_norm(f.linear(x, self.k_proj.weight, self.k_proj.bias))
        return f.split_heads(query, self.width), f.split_heads(key, self.width), self.v_proj(x)


class Olmo2Block(nn.Module):
    """One layer: attention and MLP, each normalized after."""

    def __init__(self, config: DecoderConfig) -> None:
        self.self_attn = Olmo2Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.mlp = MLP(config)
        self.post_feedforward_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)

    def __call__(self, h: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        h = h + self.post_attention_layernorm(self.self_attn(h, rope, cache))
        return h + self.post_feedforward_layernorm(self.mlp(h))


class Olmo2(DecoderModel):
    """Blocks with norms after."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config, [Olmo2Block(config) for _ in range(config.layers)])


ARCHITECTURE = Architecture(
    name="olmo2",
    config=DecoderConfig,
    model_types=("olmo2",),
    read_config_json=lambda data: DecoderConfig(**from_config_json(data)),
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Olmo2,
    tensors=TensorNames(gguf=GGUF_NAMES_WITH_NORMS_AFTER),
)
