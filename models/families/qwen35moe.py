"""Qwen3.5 with experts in place of MLPs, and a shared MLP with a gate.

Source: the model `qwen3_5_moe` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.experts import (
    EXPERT_FOLDER_NAMES,
    EXPERT_GGUF_NAMES,
    JOINED_EXPERTS,
    STACKED_EXPERTS,
    ExpertsConfig,
    MixtureOfExperts,
    experts_from_config_json,
    experts_from_gguf,
)
from hearthd.models.families import qwen35
from hearthd.models.families.qwen35 import Qwen35

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(qwen35.Config, ExpertsConfig):
    """The shape of a model."""

    by_layer = (*qwen35.Config.by_layer, "routed")


class Qwen35Moe(Qwen35):
    """Qwen3.5's blocks with experts."""

    @override
    def feed_forward(self, config: qwen35.Config) -> Callable[[Tensor], Tensor]:
        assert isinstance(config, Config), "experts need their configuration"
        return MixtureOfExperts(config)


_ALWAYS = {"normalized": True, "shared_gate": True}


def fields_from_hugging_face(text: ConfigJson) -> dict[str, Any]:
    """The fields of `Config` from the section of the text model; raises ConfigError."""
    shared = text.size("shared_expert_intermediate_size")
    text.assume(intermediate_size=shared)
    text.fixed(norm_topk_prob=True, use_sliding_window=False)
    fields = experts_from_config_json(text, qwen35.fields_from_hugging_face(text))
    return {**fields, **_ALWAYS, "shared_ffn": shared}


def fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config` from GGUF metadata; raises ConfigError."""
    width = data.size("feed_forward_length", default=data.size("expert_feed_forward_length"))
    return {**experts_from_gguf(data, qwen35.fields_from_gguf(data, ffn=width)), **_ALWAYS}


_OF_QWEN35 = qwen35.ARCHITECTURE.tensors
SHARED_NAMES = {
    "mlp.shared_gate": "mlp.shared_expert_gate",
    **{
        f"mlp.shared_experts.{part}_proj": f"mlp.shared_expert.{part}_proj"
        for part in ("gate", "up", "down")
    },
}
ARCHITECTURE = Architecture(
    name="qwen35moe",
    config=Config,
    model_types=("qwen3_5_moe_text", "qwen3_5_moe"),
    read_config_json=lambda data: Config(**fields_from_hugging_face(data.text_section(tied=None))),
    read_gguf=lambda data: Config(**fields_from_gguf(data)),
    model=Qwen35Moe,
    tensors=replace(
        _OF_QWEN35,
        gguf={**EXPERT_GGUF_NAMES, **_OF_QWEN35.gguf},
        folder={
            **_OF_QWEN35.folder,
            **EXPERT_FOLDER_NAMES,
            **SHARED_NAMES,
            **STACKED_EXPERTS,
        },
        joined=JOINED_EXPERTS,
    ),
)
