"""SmallThinker: experts that are chosen by the states before attention, with ReLU.

Source: "SmallThinker" (2025) and modeling_smallthinker.py of SmallThinker-4BA0.6B-Instruct.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.experts import (
    EXPERT_GGUF_NAMES,
    Experts,
    ExpertsConfig,
    MixtureOfExperts,
    experts_from_gguf,
    mixture,
)
from hearthd.models.decoder.layers import Attention, Block, DecoderModel
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl.functions.routing import CHOSEN, SIGMOID
from hearthd.models.families import smollm3

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

_PERIOD = 4  # with windows, every fourth layer has none, and no positions: the first one first
_GATES = {1: CHOSEN, 2: SIGMOID}  # as llama.cpp numbers them; it divides by the sum
_IGNORED = (  # other names of the same, the width of MLPs that no layer has, and statistics
    "dense_ffn_hidden_size", "profile_sparsity", "sliding_window", "sliding_window_pattern",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(ExpertsConfig, smollm3.Config):
    """The shape of a model."""

    by_layer = (*ExpertsConfig.by_layer, "rotated")


class EarlyRoutedBlock(Block):
    """One layer: the states before attention choose the experts of those after it."""

    mlp: MixtureOfExperts

    @override
    def __call__(self, h: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        factors, chosen = self.mlp.routes(h)
        h = h + self.self_attn(self.input_layernorm(h), rope, cache)
        return h + mixture(self.post_attention_layernorm(h), self.mlp.experts, factors, chosen)


class SmallThinker(DecoderModel):
    """Such blocks."""

    def __init__(self, config: Config) -> None:
        blocks = [
            EarlyRoutedBlock(
                config, Attention(config), MixtureOfExperts(config, Experts(config, f.relu))
            )
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json, in which lists have a 1 for layers with positions, and with a window."""
    data.fixed(use_qk_norm=False, moe_enable_early_router=True, moe_shared_primary_experts=0)
    data.fixed(moe_enable_secondary_experts=False, moe_num_secondary_experts=0)
    data.fixed(moe_secondary_expert_size=0)
    data.ignore(*_IGNORED)
    width = data.size("moe_ffn_hidden_size")
    fields = from_config_json(data, ffn=width)
    layers = fields["layers"]
    data.fixed(moe_layer_layout=[1] * layers)
    window = data.size("sliding_window_size", default=None)
    slides = data.counts("sliding_window_layout", default=[0] * layers)
    softmax = data.flag("moe_primary_router_apply_softmax", default=False)
    return Config(
        **fields,
        **_experts(layers, CHOSEN if softmax else SIGMOID),
        experts=data.size("moe_num_primary_experts"),
        experts_per_token=data.size("moe_num_active_primary_experts"),
        expert_ffn=width,
        windows=tuple(window if each else None for each in slides) if any(slides) else (),
        rotated=tuple(map(bool, data.counts("rope_layout", default=[1] * layers))),
    )


def _experts(layers: int, scores: str) -> dict[str, Any]:
    return {"routed": (True,) * layers, "scores": scores, "normalized": True}


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata, which do not say the layers without positions."""
    fields = experts_from_gguf(data, from_gguf_metadata(data))
    scores = data.meaning("expert_gating_func", _GATES, default=1)
    layers, window = fields["layers"], data.window()
    others = tuple(layer % _PERIOD != 0 or not window for layer in range(layers))
    return Config(
        **fields | _experts(layers, scores),
        windows=tuple(window if slides else None for slides in others) if window else (),
        rotated=others,
    )


_PARTS = ("gate", "up", "down")
ARCHITECTURE = Architecture(
    name="smallthinker",
    config=Config,
    model_types=("smallthinker",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=SmallThinker,
    tensors=TensorNames(
        gguf=EXPERT_GGUF_NAMES,
        folder={
            "mlp.gate": "block_sparse_moe.primary_router",
            **{f"mlp.experts.{part}_proj": f"block_sparse_moe.experts.*.{part}" for part in _PARTS},
        },
    ),
)
