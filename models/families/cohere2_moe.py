"""Cohere's North models: Command A's blocks with experts, after some without.

Source: the model `cohere2_moe` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import not_every_nth, windows_by_type
from hearthd.models.decoder.experts import (
    EXPERT_FOLDER_NAMES,
    EXPERT_GGUF_NAMES,
    ExpertsConfig,
    MixtureOfExperts,
    after_dense_layers,
    experts_from_gguf,
)
from hearthd.models.decoder.layers import MLP, Attention, DecoderModel, ParallelBlock
from hearthd.models.dsl.functions.routing import CHOSEN, SIGMOID
from hearthd.models.families import cohere2, command_r
from hearthd.models.families.command_r import (
    Cohere,
    fields_from_gguf,
    fields_from_hugging_face,
    norm_without_bias,
)

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_PERIOD = 4  # the first of every four layers attends to the whole context
_SCORES = {"softmax": CHOSEN, "sigmoid": SIGMOID}
_IN_GGUF = {1: CHOSEN, 2: SIGMOID}  # as llama.cpp numbers them


@dataclass(frozen=True, kw_only=True)
class Config(ExpertsConfig, cohere2.Config):
    """The shape of a model; with a shared MLP, its mean with the experts is taken."""

    by_layer = ExpertsConfig.by_layer

    @override
    def rotates(self, layer: int) -> bool:
        """Whether a layer has rotary positions: one with a window, or without experts."""
        return super().rotates(layer) or not self.routed[layer]


class MeanOfExperts(MixtureOfExperts):
    """The mean of a token's experts and of the shared MLP."""

    @override
    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        mixed = super().__call__(x)
        return mixed if self.shared_experts is None else mixed * 0.5


class Cohere2Moe(Cohere):
    """Parallel blocks with experts."""

    def __init__(self, config: Config) -> None:
        blocks = [
            ParallelBlock(
                config,
                Attention(config),
                MeanOfExperts(config) if config.routed[layer] else MLP(config),
                norm_without_bias,
            )
            for layer in range(config.layers)
        ]
        DecoderModel.__init__(self, config, blocks)
        self.norm = norm_without_bias(config.hidden, config.norm_eps)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. The layers that predict further tokens are not read."""
    data.fixed(rms_norm_eps=None, prefix_dense_sliding_window_pattern=1)
    data.fixed(shared_expert_combination_strategy="average")
    data.ignore("num_nextn_predict_layers", "output_router_logits")
    width = data.size("intermediate_size")
    fields = fields_from_hugging_face(data)
    layers, period = fields["layers"], data.size("sliding_window_pattern", default=_PERIOD)
    dense = data.count("first_k_dense_replace", default=0)
    kinds = data.texts("mlp_layer_types", default=())
    routed = tuple(kind == "sparse" for kind in kinds) or after_dense_layers(dense, layers)
    selection = data.choice("expert_selection_fn", _SCORES, default="softmax")
    ffn = data.size("prefix_dense_intermediate_size", default=width)
    return Config(
        **fields | {"ffn": ffn},
        windows=windows_by_type(data, not_every_nth(period, layers)),
        experts=data.size("num_experts"),
        experts_per_token=data.size("num_experts_per_tok"),
        expert_ffn=width,
        shared_ffn=data.count("num_shared_experts", default=0) * width or None,
        routed=routed,
        scores=_SCORES[selection],
        normalized=data.flag("norm_topk_prob", default=True),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata. A layer that predicts further tokens follows the others."""
    fields: dict[str, Any] = fields_from_gguf(data)
    if data.number("attention.layer_norm_rms_epsilon", default=None) is not None:
        raise ConfigError(
            "cohere2moe.attention.layer_norm_rms_epsilon: norms that do not subtract the mean are "
            "not supported"
        )
    layers = fields["layers"] - data.count("nextn_predict_layers", default=0)
    fields = experts_from_gguf(data, fields | {"layers": layers})
    scores = data.meaning("expert_gating_func", _IN_GGUF, default=2)
    return Config(
        **fields,
        windows=data.windows_by_layer(layers, _PERIOD, last=False),
        scores=scores,
        normalized=data.flag("expert_weights_norm", default=False),
        factor=data.number("expert_weights_scale", default=1.0),
    )


ARCHITECTURE = Architecture(
    name="cohere2moe",
    config=Config,
    model_types=("cohere2_moe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Cohere2Moe,
    tensors=replace(
        command_r.ARCHITECTURE.tensors, gguf=EXPERT_GGUF_NAMES, folder=EXPERT_FOLDER_NAMES
    ),
)
