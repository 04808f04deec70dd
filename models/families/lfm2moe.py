"""LFM2 with experts in place of MLPs, except in the first layers.

Source: the model `lfm2_moe` of transformers (2025).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.experts import (
    EXPERT_GGUF_NAMES,
    ExpertsConfig,
    after_dense_layers,
    experts_from_config_json,
    experts_from_gguf,
    feed_forward,
)
from hearthd.models.dsl.functions.routing import SIGMOID
from hearthd.models.families import lfm2
from hearthd.models.families.lfm2 import Lfm2

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

SUM_OFFSET = 1e-6


@dataclass(frozen=True, kw_only=True)
class Config(lfm2.Config, ExpertsConfig):
    """The shape of a model."""

    by_layer = (*lfm2.Config.by_layer, "routed")


class Lfm2Moe(Lfm2):
    """Blocks with attention or a convolution, and experts or an MLP."""

    config: Config

    @override
    def feed_forward(self, layer: int) -> Callable[[Tensor], Tensor]:
        return feed_forward(self.config, layer)


def _config(fields: dict[str, Any]) -> Config:
    return Config(**fields, scores=SIGMOID, sum_offset=SUM_OFFSET)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.assume(block_auto_adjust_ff_dim=False, norm_topk_prob=True)
    fields = experts_from_config_json(data, lfm2.fields_from_hugging_face(data))
    routed = after_dense_layers(data.count("num_dense_layers", default=2), fields["layers"])
    return _config(
        fields
        | {
            "routed": routed,
            "choice_bias": data.flag("use_expert_bias", default=True),
            "factor": data.number("routed_scaling_factor", default=1.0),
        }
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    data.fixed("expert_gating_func", 2)  # sigmoid
    fields = experts_from_gguf(data, lfm2.fields_from_gguf(data))
    biases = [data.has_tensor(f"blk.{i}.exp_probs_b.bias") for i in range(fields["layers"])]
    return _config(fields | {"choice_bias": any(biases), "normalized": True})


_OF_LFM2 = lfm2.ARCHITECTURE.tensors
_NAMES = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}

ARCHITECTURE = Architecture(
    name="lfm2moe",
    config=Config,
    model_types=("lfm2_moe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Lfm2Moe,
    tensors=replace(
        _OF_LFM2,
        gguf={**EXPERT_GGUF_NAMES, **_OF_LFM2.gguf},
        folder={
            **_OF_LFM2.folder,
            "mlp.gate": "feed_forward.gate",
            "mlp.choice.bias": "feed_forward.expert_bias",
            **{
                f"mlp.experts.{part}": f"feed_forward.experts.*.{name}"
                for part, name in _NAMES.items()
            },
        },
    ),
)
