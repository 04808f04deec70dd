"""Granite 3, and Granite 4 without Mamba layers and experts: Llama with four multipliers.

Source: "Granite 3.0 Language Models" (2024), and `granitemoehybrid` of transformers (2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    FULL,
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import MLP, Attention, Block, DecoderModel
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import Layer, RopeTable
    from hearthd.models.dsl.graph import Tensor

GRANITE_4 = "granitemoehybrid"
_ROTATES = "rope.scaling.finetuned"  # in GGUF files: whether attention has positions
_OF_MAMBA = (
    "mamba_chunk_size", "mamba_conv_bias", "mamba_d_conv", "mamba_d_head", "mamba_d_state",
    "mamba_expand", "mamba_n_groups", "mamba_n_heads", "mamba_proj_bias",
)  # fmt: skip
_OF_MAMBA_IN_GGUF = (
    "ssm.conv_kernel", "ssm.group_count", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model.

    embedding_scale  multiplies embeddings
    attention_scale  factor of q k^T
    residual_scale   multiplies what a layer adds
    logit_scale      divides logits
    """

    embedding_scale: float
    attention_scale: float
    residual_scale: float
    logit_scale: float


class GraniteBlock(Block):
    """One layer, whose results are scaled before they are added."""

    def __init__(
        self,
        config: Config,
        mlp: Callable[[Tensor], Tensor] | None = None,
        mixer: Layer | None = None,
    ) -> None:
        """`mlp` is Llama's unless given, `mixer` its attention with another scale."""
        attention = mixer or Attention(config, scale=config.attention_scale)
        super().__init__(config, attention, mlp or MLP(config))
        self.scale = config.residual_scale

    @override
    def __call__(self, h: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        x = self.input_layernorm(h)
        h = h + self.self_attn(x, rope, cache) * self.scale
        x = self.post_attention_layernorm(h)
        return h + self.mlp(x) * self.scale


class Granite(DecoderModel):
    """Embeddings and logits are scaled too."""

    config: Config

    def __init__(self, config: Config, blocks: Sequence[GraniteBlock] | None = None) -> None:
        plain = (GraniteBlock(config) for _ in range(config.layers))
        super().__init__(config, blocks or list(plain))

    @override
    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens i32 (N,) -> hidden states (N, E)."""
        return super().embed(tokens) * self.config.embedding_scale

    @override
    def logits(self, x: Tensor) -> Tensor:
        """Normalized hidden states (N, E) -> logits (N, V)."""
        return super().logits(x * (1.0 / self.config.logit_scale))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    fields = fields_from_hugging_face(data)
    if data.text("model_type", default="") == GRANITE_4:
        data.fixed(num_local_experts=0)
        data.ignore("num_experts_per_tok", "output_router_logits", "router_aux_loss_coef")
        fields["ffn"] = data.size("shared_intermediate_size")
    return Config(**fields)


def fields_from_hugging_face(data: ConfigJson) -> dict[str, Any]:
    """The fields of `Config` from config.json; raises ConfigError."""
    fields = from_config_json(data)
    if data.text("model_type", default="") == GRANITE_4:
        _require_attention(data)
    return {**fields, **multipliers(data)}


def multipliers(data: ConfigJson) -> dict[str, float]:
    """The four multipliers of `Config` from config.json; raises ConfigError."""
    return {
        "embedding_scale": data.number("embedding_multiplier", default=1.0),
        "attention_scale": data.number("attention_multiplier", default=1.0),
        "residual_scale": data.number("residual_multiplier", default=1.0),
        "logit_scale": data.number("logits_scaling", default=1.0),
    }


def _require_attention(data: ConfigJson) -> None:
    """Read the further keys of Granite 4; raises ConfigError for values that are not supported."""
    data.fixed(normalization_function="rmsnorm")
    data.ignore("init_method", "time_step_limit", *_OF_MAMBA)
    mixers = set(data.texts("layer_types", default=["mamba"])) - {"attention", FULL}
    if mixers:
        raise ConfigError(
            f"config.json: layer_types: got {sorted(mixers)[0]!r:.80}, supported: attention"
        )
    positions = data.text("position_embedding_type", default="nope")
    if positions != "rope":
        raise ConfigError(
            f"config.json: position_embedding_type: got {positions!r:.80}, supported: rope"
        )


def fields_from_gguf(data: GgufMetadata, *, kv_heads: int | None = None) -> dict[str, Any]:
    """The fields of `Config` from GGUF metadata; raises ConfigError.

    kv_heads  key/value heads of a hybrid, whose metadata say them by layer. Its attention has no
              positions
    """
    if kv_heads is None:  # Granite 4: its files also have the keys of hybrids
        data.ignore(*_OF_MAMBA_IN_GGUF)
    if (rotates := data.flag(_ROTATES, default=True)) != (kv_heads is None):
        raise ConfigError(f"{_ROTATES}: got {rotates}, supported is {not rotates}")
    fields = from_gguf_metadata(data, kv_heads=kv_heads)
    return {
        **fields,
        "embedding_scale": data.number("embedding_scale", default=1.0),
        "attention_scale": data.number("attention.scale", default=fields["head_dim"] ** -0.5),
        "residual_scale": data.number("residual_scale", default=1.0),
        "logit_scale": data.number("logit_scale"),
    }


def without_experts(data: GgufMetadata, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a model without experts; Granite 4's files state an expert_count of 0.

    An MLP is then as wide as the shared one. Raises ConfigError.
    """
    if experts := data.count("expert_count", default=0):
        raise ConfigError(f"expert_count: got {experts}, supported is 0")
    data.ignore("expert_used_count")
    return fields | {"ffn": data.size("expert_shared_feed_forward_length", default=fields["ffn"])}


ARCHITECTURE = Architecture(
    name="granite",
    config=Config,
    model_types=("granite", GRANITE_4),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: Config(**without_experts(data, fields_from_gguf(data))),
    model=Granite,
    tensors=TensorNames(
        interleaved=QUERIES_AND_KEYS,
        joined={
            "shared_mlp.input_linear": ("mlp.gate_proj", "mlp.up_proj"),
            "shared_mlp.output_linear": ("mlp.down_proj",),
        },
    ),
)
