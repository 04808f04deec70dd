"""Ling 3.0: Kimi Linear's delta nets, and latent vectors with positions and gated heads.

Source: the model `bailing_hybrid` of transformers (2026), and llama.cpp, which limits experts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import FULL
from hearthd.models.decoder.experts import EXPERT_FOLDER_NAMES, EXPERT_GGUF_NAMES, feed_forward
from hearthd.models.decoder.latent_attention import (
    KEYS_AND_VALUES,
    LATENT_GGUF_NAMES,
    GatedLatentAttention,
)
from hearthd.models.decoder.layers import rope_table
from hearthd.models.decoder.limited_experts import (
    LimitedConfig,
    limited_feed_forward,
    limits_by_layer,
)
from hearthd.models.decoder.recurrent.channel_delta_net import KimiDeltaAttention
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.dsl.functions.routing import SIGMOID
from hearthd.models.families import deepseek2, kimi_linear

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.layers import Layer, RopeTable
    from hearthd.models.decoder.recurrent.channel_delta_net import Projection
    from hearthd.models.dsl.graph import Tensor

_FLOOR = -5.0  # the usual `-largest_fade`
_PERIOD = 6  # the last of this many layers attends, where a file does not say it
_SHARE = 0.5  # in published files; all rotary columns turn
# Keys of published files that the published code does not read.
_UNREAD = (
    "embedding_dropout", "group_norm_size", "linear_conv_kernel_dim", "linear_num_heads",
    "linear_silu", "max_window_layers", "mtp_loss_scaling_factor", "mtp_use_kda",
    "num_kv_heads_for_linear_attn", "output_dropout", "rotary_dim", "router_dtype", "use_qk_norm",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(kimi_linear.Config, LimitedConfig):
    """The shape of a model.

    largest_fade  a token takes less than this from the logarithm of each column of keys
    """

    by_layer = (*kimi_linear.Config.by_layer, *LimitedConfig.limits)

    largest_fade: float = -_FLOOR


class BoundedDeltaAttention(KimiDeltaAttention):
    """A delta net of which each token leaves at least a share of every column of keys."""

    config: Config

    @override
    def projections(self, hidden: int, width: int, inner: int) -> tuple[Projection, Projection]:
        return nn.Linear(hidden, inner), nn.Linear(hidden, inner)

    @override
    def fades(self, fading: Tensor, rates: Tensor) -> Tensor:
        return f.sigmoid(fading * rates) * -self.config.largest_fade


class Ling3(kimi_linear.KimiLinear):
    """Blocks with a delta net or latent vectors, which have positions."""

    config: Config

    @override
    def mixer(self, config: Config, layer: int) -> Layer:
        kind = GatedLatentAttention if config.attends[layer] else BoundedDeltaAttention
        return kind(config)

    @override
    def feed_forward(self, config: Config, layer: int) -> Callable[[Tensor], Tensor]:
        limited = config.expert_limits or config.mlp_limits
        return limited_feed_forward(config, layer) if limited else feed_forward(config, layer)

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        return [rope_table(self.config, positions, self.config.rotary_width)] * self.config.layers


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.rename(
        model_max_length="max_position_embeddings", moe_renormalize="norm_topk_prob",
        num_expert_group="n_group", num_experts="n_routed_experts",
        num_experts_per_token="num_experts_per_tok", num_shared_experts="n_shared_experts",
        score_function="scoring_func",
    )  # fmt: skip
    data.rename(num_local_experts="n_routed_experts")
    data.fixed(gated_attention_proj_granularity_type="head_wise", kda_safe_gate=True)
    data.fixed(no_kda_lora=True, use_kda_lora=False, use_mla_nope=False, use_nGPT=False)
    data.fixed(moe_router_enable_expert_bias=True, scale_router_input=False)
    data.fixed(up_proj_norm=False, use_bias=False, use_qkv_bias=False, value_norm=False)
    data.ignore("num_mtp_layers", *_UNREAD)
    data.rope_section()[0].fixed(partial_rotary_factor=_SHARE)
    fields = deepseek2.fields_from_hugging_face(data, SIGMOID, share=_SHARE)
    data.fixed(moe_shared_expert_intermediate_size=fields["shared_ffn"])
    layers = fields["layers"]
    period = data.size("layer_group_size", default=_PERIOD)
    kinds = data.texts("layer_types", default=())
    # By llama.cpp, the last layers attend too if they are fewer than a period.
    usual = tuple((i + 1) % period == 0 or i >= layers // period * period for i in range(layers))
    return Config(
        **fields,
        attends=tuple(kind == FULL for kind in kinds) or usual,
        delta_heads=fields["heads"],
        delta_width=data.size("linear_head_dim", default=data.size("head_dim")),
        taps=data.size("short_conv_kernel_size", default=4),
        largest_fade=-data.number_below_zero("kda_lower_bound", default=_FLOOR),
        **_limits(data, layers, "expert_swiglu_limit_list", "share_expert_swiglu_limit_list"),
    )


def _limits(data: ConfigJson | GgufMetadata, layers: int, *keys: str) -> dict[str, Any]:
    """The limits of experts and of MLPs under two keys, or none where both have no limit."""
    limits = {
        name: limits_by_layer(data.factors(key, default=()), layers)
        for name, key in zip(LimitedConfig.limits, keys, strict=True)
    }
    return limits if any(any(values) for values in limits.values()) else {}


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata. A delta net has 0 key/value heads."""
    if not data.flag("kda.safe_gate", default=True):
        raise ConfigError("kda.safe_gate is False, supported is True")
    heads = data.counts("attention.head_count_kv")
    fields = deepseek2.fields_from_gguf(data)
    layers = fields["layers"]
    return Config(
        **fields,
        attends=tuple(count > 0 for count in heads[:layers]),
        delta_heads=fields["heads"],
        delta_width=data.size("kda.head_dim"),
        taps=data.size("ssm.conv_kernel"),
        largest_fade=-data.number_below_zero("kda.gate_lower_bound", default=_FLOOR),
        **_limits(data, layers, "swiglu_clamp_exp", "swiglu_clamp_shexp"),
    )


# Parts of attention and of delta nets that have the same names in folders.
_PARTS = (
    "b_proj", "k_conv1d", "k_proj", "kv_a_layernorm", "kv_a_proj_with_mqa", "o_norm", "o_proj",
    "q_a_layernorm", "q_a_proj", "q_b_proj", "q_conv1d", "q_proj", "v_conv1d", "v_proj",
)  # fmt: skip
ARCHITECTURE = Architecture(
    name="bailingmoe3",
    config=Config,
    model_types=("bailing_hybrid", "bailing_moe_v3"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Ling3,
    tensors=TensorNames(
        gguf={
            **EXPERT_GGUF_NAMES,
            **LATENT_GGUF_NAMES,
            **kimi_linear.DELTA_GGUF_NAMES,
            "self_attn.fading": "ssm_f_a",
            "self_attn.gate": "ssm_g_a",
        },
        folder={
            **EXPERT_FOLDER_NAMES,
            **{f"self_attn.{part}": f"attention.{part}" for part in _PARTS},
            "embed_tokens": "word_embeddings",
            "mlp.choice.bias": "mlp.gate.expert_bias",
            "self_attn.dt.bias": "attention.dt_bias",
            "self_attn.fading": "attention.f_proj",
            "self_attn.gate": "attention.g_proj",
            "self_attn.gate_proj": "attention.g_proj",
            "self_attn.rates.weight": "attention.A_log",
        },
        joined={"attention.dense": ("self_attn.o_proj",)},  # as transformers saves it
        positive_logarithms=("self_attn.rates",),
        grouped=(replace(KEYS_AND_VALUES, folder="attention.kv_b_proj"),),
    ),
)
