"""OLMo 2 and 3: Llama with norms after attention and MLP, and of all queries and keys together.

Source: "2 OLMo 2 Furious" (2024), "Olmo 3" (2025).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    FULL,
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
    local_rope_base,
    not_every_nth,
    windows_by_type,
)
from hearthd.models.decoder.config.rope_scaling import Rope
from hearthd.models.decoder.layers import MLP, Attention, DecoderModel
from hearthd.models.decoder.tensor_names import GGUF_NAMES_WITH_NORMS_AFTER, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import Layer, RopeTable
    from hearthd.models.dsl.graph import Tensor

_OLMO_3 = "olmo3"
_PERIOD = 4  # every fourth layer of OLMo 3 attends to the whole context


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; `local_rope_base` is for layers with a window, None without any."""

    local_rope_base: float | None = None

    @property
    @override
    def local(self) -> DecoderConfig:
        """The shape of the layers with a window, whose rotary positions are not scaled."""
        if self.local_rope_base is None:
            return self
        return replace(self, **Rope(base=self.local_rope_base).fields)


class Olmo2Attention(Attention):
    """Attention that normalizes queries and keys before it splits them into heads."""

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

    def __init__(self, config: DecoderConfig, self_attn: Layer) -> None:
        self.self_attn = self_attn
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.mlp = MLP(config)
        self.post_feedforward_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)

    def __call__(self, h: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        h = h + self.post_attention_layernorm(self.self_attn(h, rope, cache))
        return h + self.post_feedforward_layernorm(self.mlp(h))


class Olmo2(DecoderModel):
    """Blocks with norms after."""

    def __init__(self, config: Config) -> None:
        attention = (Olmo2Attention(config) for _ in range(config.layers))
        super().__init__(config, [Olmo2Block(config, layer) for layer in attention])


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    if data.text("model_type", default="") != _OLMO_3:
        return Config(**from_config_json(data))
    data.assume(rope_theta=500_000.0, sliding_window=4096)
    fields = from_config_json(data, lambda data, *shape: data.rope(*shape, FULL))
    shape = fields["head_dim"], fields["max_context"]
    return Config(
        **fields,
        windows=windows_by_type(data, not_every_nth(_PERIOD, fields["layers"])),
        local_rope_base=local_rope_base(data, *shape, default=fields["rope_base"]),
    )


def fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields, from GGUF metadata, which have a window if the model is OLMo 3."""
    fields = from_gguf_metadata(data)
    windows = data.windows_by_layer(fields["layers"], _PERIOD)
    base = data.number("rope.freq_base_swa", default=fields["rope_base"]) if windows else None
    return {**fields, "windows": windows, "local_rope_base": base}


ARCHITECTURE = Architecture(
    name="olmo2",
    config=Config,
    model_types=("olmo2", _OLMO_3),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: Config(**fields_from_gguf(data)),
    model=Olmo2,
    tensors=TensorNames(gguf=GGUF_NAMES_WITH_NORMS_AFTER),
)
