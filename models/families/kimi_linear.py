"""Kimi Linear: delta nets whose memory fades column by column, and latent vectors in some layers.

Source: "Kimi Linear" (2025) and the model `kimi_linear` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import FULL
from hearthd.models.decoder.experts import EXPERT_FOLDER_NAMES, EXPERT_GGUF_NAMES, feed_forward
from hearthd.models.decoder.latent_attention import (
    KEYS_AND_VALUES,
    LATENT_GGUF_NAMES,
    LatentAttention,
)
from hearthd.models.decoder.layers import Block, DecoderModel
from hearthd.models.decoder.recurrent.channel_delta_net import (
    ChannelDeltaConfig,
    KimiDeltaAttention,
)
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl.functions.routing import SIGMOID
from hearthd.models.families import deepseek2

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import StateRows
    from hearthd.models.decoder.layers import Layer, RopeTable
    from hearthd.models.dsl.graph import Tensor

_PERIOD = 4


@dataclass(frozen=True, kw_only=True)
class Config(deepseek2.Config, ChannelDeltaConfig):
    """The shape of a model."""

    by_layer = (*deepseek2.Config.by_layer, "attends")


class KimiLinear(DecoderModel):
    """Blocks with a delta net or latent vectors, without positions."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [
            Block(config, self.mixer(config, layer), self.feed_forward(config, layer))
            for layer in range(config.layers)
        ]
        super().__init__(config, blocks)

    def mixer(self, config: Any, layer: int) -> Layer:
        """The part of a layer that reads other tokens."""
        return LatentAttention(config) if config.attends[layer] else KimiDeltaAttention(config)

    def feed_forward(self, config: Any, layer: int) -> Callable[[Tensor], Tensor]:
        """The experts of a layer, or its MLP."""
        return feed_forward(config, layer)

    @override
    def rope_tables(self, _: Tensor) -> list[RopeTable | None]:
        return [None] * self.config.layers

    @override
    def states(self, layer: int) -> tuple[StateRows, ...]:
        return () if self.config.attends[layer] else self.config.states


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.rename(
        model_max_length="max_position_embeddings", moe_renormalize="norm_topk_prob",
        moe_router_activation_func="scoring_func", num_expert_group="n_group",
        num_experts="n_routed_experts", num_experts_per_token="num_experts_per_tok",
        num_shared_experts="n_shared_experts",
    )  # fmt: skip
    data.rename(num_local_experts="n_routed_experts")
    data.fixed(mla_use_nope=True, rope_scaling=None)
    data.ignore("use_grouped_topk")
    fields = deepseek2.fields_from_hugging_face(data, SIGMOID)
    return Config(**fields | {"turns_neighbors": False}, **_delta_fields(data, fields["layers"]))


def _delta_fields(data: ConfigJson, layers: int) -> dict[str, Any]:
    """The fields that `Config` adds: in an object of published files."""
    if not data.has("linear_attn_config"):
        kinds = data.texts("layer_types", default=())
        usual = tuple(layer > 0 and layer % _PERIOD == 0 for layer in range(layers))
        return {
            "attends": tuple(kind == FULL for kind in kinds) or usual,
            "delta_heads": data.size("linear_num_heads", default=32),
            "delta_width": data.size("linear_head_dim", default=128),
            "taps": data.size("linear_conv_kernel_dim", default=4),
        }
    linear = data.section("linear_attn_config")
    linear.ignore("kda_layers")
    attends = linear.counts("full_attn_layers")
    return {
        "attends": tuple(layer + 1 in attends for layer in range(layers)),
        "delta_heads": linear.size("num_heads"),
        "delta_width": linear.size("head_dim"),
        "taps": linear.size("short_conv_kernel_size", default=4),
    }


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata. A delta net has 0 key/value heads."""
    fields = deepseek2.fields_from_gguf(data)
    heads = data.counts("attention.head_count_kv")
    return Config(
        **fields | {"normalized": True, "turns_neighbors": False},
        attends=tuple(count > 0 for count in heads),
        delta_heads=fields["heads"],
        delta_width=data.size("kda.head_dim"),
        taps=data.size("ssm.conv_kernel"),
    )


DELTA_GGUF_NAMES = {
    "self_attn.q_conv1d": "ssm_conv1d_q",
    "self_attn.k_conv1d": "ssm_conv1d_k",
    "self_attn.v_conv1d": "ssm_conv1d_v",
    "self_attn.fading.a_proj": "ssm_f_a",
    "self_attn.fading.b_proj": "ssm_f_b",
    "self_attn.gate.a_proj": "ssm_g_a",
    "self_attn.gate.b_proj": "ssm_g_b",
    "self_attn.b_proj": "ssm_beta",
    "self_attn.dt": "ssm_dt",
    "self_attn.o_norm": "ssm_norm",
    "self_attn.rates.weight": "ssm_a",
}
_EXPERTS = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
_MOE = "block_sparse_moe"
ARCHITECTURE = Architecture(
    name="kimi-linear",
    config=Config,
    model_types=("kimi_linear",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=KimiLinear,
    tensors=TensorNames(
        gguf={
            **EXPERT_GGUF_NAMES,
            **LATENT_GGUF_NAMES,
            **DELTA_GGUF_NAMES,
        },
        folder={
            **EXPERT_FOLDER_NAMES,
            "mlp.gate": f"{_MOE}.gate",
            "mlp.choice.bias": f"{_MOE}.gate.e_score_correction_bias",
            **{f"mlp.experts.{a}": f"{_MOE}.experts.*.{b}" for a, b in _EXPERTS.items()},
            **{f"mlp.shared_experts.{part}": f"{_MOE}.shared_experts.{part}" for part in _EXPERTS},
            **{f"dense.{part}": f"{_MOE}.{part}" for part in _EXPERTS},
            "self_attn.fading.a_proj": "self_attn.f_a_proj",
            "self_attn.fading.b_proj": "self_attn.f_b_proj",
            "self_attn.gate.a_proj": "self_attn.g_a_proj",
            "self_attn.gate.b_proj": "self_attn.g_b_proj",
            "self_attn.dt.bias": "self_attn.dt_bias",
            "self_attn.rates.weight": "self_attn.A_log",
        },
        joined={f"dense.{part}": (f"mlp.{part}",) for part in _EXPERTS},  # as transformers saves it
        logarithms=("self_attn.rates",),
        grouped=(KEYS_AND_VALUES,),
    ),
)
