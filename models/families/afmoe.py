"""AFMoE, the models Trinity: norms before and after, gated heads, and corrected experts.

Source: "Arcee Trinity Large Technical Report" (2026) and the model `afmoe` of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    from_config_json,
    from_gguf_metadata,
    not_every_nth,
    windows_by_type,
)
from hearthd.models.decoder.experts import (
    EXPERT_FOLDER_NAMES,
    EXPERT_GGUF_NAMES,
    ExpertsConfig,
    feed_forward,
)
from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.decoder.tensor_names import GGUF_NAMES_WITH_NORMS_AFTER, TensorNames
from hearthd.models.dsl.functions.routing import SIGMOID
from hearthd.models.families import exaone4
from hearthd.models.families.gemma3 import GemmaBlock, GemmaModel
from hearthd.models.families.glm4moe import corrected_experts, corrected_experts_from_gguf
from hearthd.models.families.lfm3 import NormedGatedAttention

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_PERIOD = 4  # every fourth layer attends to the whole context


@dataclass(frozen=True, kw_only=True)
class Config(ExpertsConfig, exaone4.Config):
    """The shape of a model."""


class GatedColumnsAttention(NormedGatedAttention):
    """Attention whose results are each multiplied by a number from 0 to 1."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.gate_proj = HeadLinear(config.hidden, config.heads, config.head_dim)

    @override
    def gate(self, x: Tensor, heads: Tensor) -> Tensor:
        return self.gate_proj(x)


class Afmoe(GemmaModel):
    """Gemma's blocks with experts and a shared MLP, after some without experts."""

    def __init__(self, config: Config) -> None:
        blocks = [
            GemmaBlock(config, GatedColumnsAttention(config), feed_forward(config, layer))
            for layer in range(config.layers)
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.fixed(score_func=SIGMOID, num_expert_groups=1, num_limited_groups=1)
    data.ignore("load_balance_coeff", "use_grouped_mm")
    data.rename(
        num_dense_layers="first_k_dense_replace",
        route_norm="norm_topk_prob",
        route_scale="routed_scaling_factor",
    )
    if not data.flag("mup_enabled", default=False):
        raise ConfigError("config.json: mup_enabled is False, supported is True")
    fields = corrected_experts(data, from_config_json(data))
    layers = fields["layers"]
    period = data.size("global_attn_every_n_layers", default=_PERIOD)
    windows = windows_by_type(data, not_every_nth(period, layers))
    return Config(**fields, windows=windows or (None,) * layers)


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = corrected_experts_from_gguf(data, from_gguf_metadata(data))
    layers = fields["layers"]
    return Config(**fields, windows=data.windows_by_layer(layers, _PERIOD) or (None,) * layers)


ARCHITECTURE = Architecture(
    name="afmoe",
    config=Config,
    model_types=("afmoe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Afmoe,
    tensors=TensorNames(
        gguf={**EXPERT_GGUF_NAMES, **GGUF_NAMES_WITH_NORMS_AFTER},
        folder={
            **EXPERT_FOLDER_NAMES,
            "mlp.gate": "mlp.router.gate",
            "mlp.choice.bias": "mlp.expert_bias",
            "pre_feedforward_layernorm": "pre_mlp_layernorm",
            "post_feedforward_layernorm": "post_mlp_layernorm",
        },
    ),
)
