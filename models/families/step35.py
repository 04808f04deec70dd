"""Step 3.5 Flash: gated heads, more of them in layers with a window, and experts with limits.

Source: the model `step3p7` of transformers, whose text part it is (StepFun, 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.config import MAX_LAYERS, ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config import rope_scaling
from hearthd.models.decoder.config.config_json import ConfigJson
from hearthd.models.decoder.config.decoder_config import FULL, SLIDING, from_config_json
from hearthd.models.decoder.experts import EXPERT_GGUF_NAMES
from hearthd.models.decoder.layers import Block
from hearthd.models.decoder.limited_experts import (
    LimitedConfig,
    limited_feed_forward,
    limits_by_layer,
)
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.decoder.two_ropes import TwoRopesModel, two_ropes_from_gguf
from hearthd.models.families import laguna
from hearthd.models.families.glm4moe import corrected_experts, corrected_experts_from_gguf
from hearthd.models.families.laguna import heads_by_kind
from hearthd.models.families.lfm3 import NormedGatedAttention

if TYPE_CHECKING:
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.rope_scaling import Rope


@dataclass(frozen=True, kw_only=True)
class Config(laguna.Config, LimitedConfig):
    """The shape of a model."""

    by_layer = (*laguna.Config.by_layer, *LimitedConfig.limits)


class Step35(TwoRopesModel):
    """Blocks with experts and a shared MLP, after some without experts."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [
            Block(
                config,
                NormedGatedAttention(config.layer(layer)),
                limited_feed_forward(config, layer),
            )
            for layer in range(config.layers)
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. Its lists may go on with the layers that predict further tokens."""
    data.ignore("image_token_len", "patch_token_len", "projector_bias")
    data.ignore("understand_projector_stride")
    data = data.text_section(tied=False)
    data.fixed(att_impl_type="GQA", moe_router_activation="sigmoid", sink=False, use_moe=True)
    data.fixed(norm_expert_weight=True, use_head_wise_attn_gate=True, use_moe_router_bias=True)
    data.fixed(use_qk_norm=True, use_rope_layers=[], yarn_only_types=[FULL], zero_centered=True)
    data.fixed(moe_every_n_layer=1, moe_layer_offset=0)
    data.ignore("max_seq_len", "need_fp32_gate", "share_expert_dims")
    data.rename(
        num_attention_groups="num_key_value_heads",
        moe_num_experts="n_routed_experts",
        moe_top_k="num_experts_per_tok",
        moe_router_scaling_factor="routed_scaling_factor",
    )
    layers = data.size("num_hidden_layers", limit=MAX_LAYERS)
    data.assume(first_k_dense_replace=_dense_layers(data, layers))
    kinds = data.texts("layer_types", default=())
    if len(kinds) < layers or {*kinds[:layers]} != {FULL, SLIDING}:
        raise ConfigError(f"layer_types: expected {FULL} and {SLIDING} for {layers} layers")
    everywhere, local = kinds.index(FULL), kinds.index(SLIDING)
    bases, shares = data.numbers("rope_theta"), data.numbers("partial_rotary_factors")

    def rope(data: ConfigJson, head_dim: int, max_context: int) -> Rope:
        section = data.section("rope_scaling") if data.has("rope_scaling") else ConfigJson({})
        width = int(head_dim * shares[everywhere])
        return rope_scaling.read(section, bases[everywhere], width, max_context)

    fields = corrected_experts(data, from_config_json(data, rope))
    others, width = data.section("attention_other_setting"), fields["head_dim"]
    others.fixed(attention_type=SLIDING, num_attention_groups=fields["kv_heads"])
    others.fixed(head_dim=width, true_head_dim=width)
    windows = tuple(
        data.size("sliding_window") if kind == SLIDING else None for kind in kinds[:layers]
    )
    heads = {FULL: fields["heads"], SLIDING: others.size("num_attention_heads")}
    by_layer = [heads[kind] for kind in kinds[:layers]]
    return Config(
        **fields | heads_by_kind(by_layer, windows) | {"shared_ffn": data.size("share_expert_dim")},
        rotary_width=int(width * shares[everywhere]),
        local_rope_base=bases[local],
        local_rotary_width=int(width * shares[local]),
        expert_limits=limits_by_layer(data.factors("swiglu_limits", default=()), layers),
        mlp_limits=limits_by_layer(data.factors("swiglu_limits_shared", default=()), layers),
    )


def _dense_layers(data: ConfigJson, layers: int) -> int:
    """The first layers, which have no experts; raises ConfigError if others have none too."""
    listed = data.text("moe_layers_enum", default="").replace(" ", "").split(",")
    dense = layers - len(listed)
    if listed != [str(layer) for layer in range(dense, layers)]:
        raise ConfigError(f"moe_layers_enum: expected all layers after some, up to {layers - 1}")
    return dense


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata. Half of the columns turn in layers without a window."""
    data.choice("rope.scaling.type", ("none", "linear"), default="linear")
    data.fixed("moe_every_n_layers", 1)
    blocks = data.size("block_count", limit=MAX_LAYERS)
    windows = data.windows_by_layer(blocks)
    heads = heads_by_kind(data.by_layer("attention.head_count", blocks), windows)
    fields = corrected_experts_from_gguf(data, two_ropes_from_gguf(data, heads=heads["heads"]))
    layers, width = fields["layers"], fields["rotary_width"] // 2
    fields |= {"rotary_width": width, "rope_divisors": fields["rope_divisors"][: width // 2]}
    fields |= {"shared_ffn": data.size("expert_shared_feed_forward_length")}
    return Config(
        **fields | heads | {"windows": windows[:layers]},
        expert_limits=limits_by_layer(data.factors("swiglu_clamp_exp", default=()), layers),
        mlp_limits=limits_by_layer(data.factors("swiglu_clamp_shexp", default=()), layers),
    )


_PARTS = ("gate_proj", "up_proj", "down_proj")
ARCHITECTURE = Architecture(
    name="step35",
    config=Config,
    model_types=("step3p5", "step3p7"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Step35,
    tensors=TensorNames(
        gguf=EXPERT_GGUF_NAMES,
        folder={
            "self_attn.gate_proj": "self_attn.g_proj",
            "mlp.gate": "moe.gate",
            "mlp.choice.bias": "moe.router_bias",
            **{f"mlp.experts.{part}": f"moe.{part}" for part in _PARTS},
            **{f"mlp.shared_experts.{part}": f"share_expert.{part}" for part in _PARTS},
        },
        norm_offset=1.0,
        others=("vision_model.", "vit_large_projector"),
    ),
)
