"""Laguna XS.2: gated heads, more of them in layers with a window, and corrected experts.

Source: the model `laguna` of transformers (poolside, 2026).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import MAX_LAYERS, ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import windows_by_type
from hearthd.models.decoder.config.rope_scaling import Rope
from hearthd.models.decoder.experts import (
    EXPERT_FOLDER_NAMES,
    EXPERT_GGUF_NAMES,
    ExpertsConfig,
    feed_forward,
)
from hearthd.models.decoder.layers import Block
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.decoder.two_ropes import (
    TwoRopesConfig,
    TwoRopesModel,
    two_ropes_fields,
    two_ropes_from_gguf,
)
from hearthd.models.dsl import functions as f
from hearthd.models.families.glm4moe import corrected_experts, corrected_experts_from_gguf
from hearthd.models.families.lfm3 import NormedGatedAttention

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_PERIOD = 4  # the first of every four layers attends to the whole context
_BY_HEAD = "per-head"


@dataclass(frozen=True, kw_only=True)
class Config(TwoRopesConfig, ExpertsConfig):
    """The shape of a model.

    local_heads  query heads of layers with a window; `heads` are for the others
    """

    by_layer = ExpertsConfig.by_layer

    local_heads: int

    @property
    @override
    def local(self) -> Config:
        """The shape of the layers with a window."""
        return replace(
            self,
            heads=self.local_heads,
            rotary_width=self.local_rotary_width,
            **Rope(base=self.local_rope_base).fields,
        )


class SoftplusGatedAttention(NormedGatedAttention):
    """Attention whose heads are each multiplied by a number above 0."""

    @override
    def gated(self, x: Tensor, heads: Tensor) -> Tensor:
        """Heads (N, H, D), times their factors."""
        return heads * f.softplus(self.gate(x, heads))


class Laguna(TwoRopesModel):
    """Blocks with experts and a shared MLP, after some without experts."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [
            Block(config, SoftplusGatedAttention(config.layer(layer)), feed_forward(config, layer))
            for layer in range(config.layers)
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. Laguna M.1, which has a gate for each column, is not supported."""
    data.fixed(moe_apply_router_weight_on_input=False, moe_router_logit_softcapping=0.0)
    data.fixed(norm_topk_prob=True, decoder_sparse_step=1, qkv_bias=False, attention_bias=False)
    data.one_of("gating", (True, _BY_HEAD))
    data.ignore("router_aux_loss_coef")
    data.rename(moe_routed_scaling_factor="routed_scaling_factor")
    fields = corrected_experts(data, two_ropes_fields(data))
    layers = fields["layers"]
    kinds = data.texts("mlp_layer_types", default=())
    routed = tuple(kind == "sparse" for kind in kinds) or fields["routed"]
    data.fixed(mlp_only_layers=[layer for layer in range(layers) if not routed[layer]])
    data.fixed(gating_types=["per_head"] * layers)
    windows = windows_by_type(data, [False] * layers)
    heads = data.counts("num_attention_heads_per_layer", default=[fields["heads"]] * layers)
    shared = data.size("shared_expert_intermediate_size")
    fields |= {"routed": routed, "shared_ffn": shared}
    return Config(**fields | heads_by_kind(heads, windows))


def heads_by_kind(by_layer: Sequence[int], windows: tuple[int | None, ...]) -> dict[str, Any]:
    """Fields from the query heads of each layer; raises ConfigError for other differences."""
    windows = windows or (None,) * len(by_layer)
    if len(windows) != len(by_layer):
        raise ConfigError(
            f"attention heads: got {len(by_layer)} numbers, expected one for each of "
            f"{len(windows)} layers"
        )
    everywhere, local = (
        {heads for heads, window in zip(by_layer, windows, strict=True) if bool(window) == slides}
        for slides in (False, True)
    )
    if len(everywhere) != 1 or len(local) > 1:
        raise ConfigError(
            f"attention heads: got {[*everywhere]} in layers without a window and {[*local]} in "
            "others, supported is a number for each kind of layer"
        )
    heads = everywhere.pop()
    return {"windows": windows, "heads": heads, "local_heads": local.pop() if local else heads}


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    layers = data.size("block_count", limit=MAX_LAYERS)
    windows = data.windows_by_layer(layers, _PERIOD, last=False)
    by_layer = data.by_layer("attention.head_count", layers)
    heads = heads_by_kind(by_layer, windows)
    fields = two_ropes_from_gguf(data, heads=heads["heads"])
    fields = corrected_experts_from_gguf(data, fields)
    shared = data.size("expert_shared_feed_forward_length", default=fields["expert_ffn"])
    return Config(**fields | {"shared_ffn": shared} | heads)


ARCHITECTURE = Architecture(
    name="laguna",
    config=Config,
    model_types=("laguna",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Laguna,
    tensors=TensorNames(
        gguf=EXPERT_GGUF_NAMES,
        folder={
            **EXPERT_FOLDER_NAMES,
            "self_attn.gate_proj": "self_attn.g_proj",
            "mlp.choice.bias": "mlp.experts.e_score_correction_bias",
            **{
                f"mlp.shared_experts.{part}_proj": f"mlp.shared_expert.{part}_proj"
                for part in ("gate", "up", "down")
            },
        },
    ),
)
