"""gpt-oss: attention with sinks, and experts with biases and a bounded gate in every layer.

Source: "gpt-oss-120b & gpt-oss-20b Model Card" (2025) and the model `gpt_oss` of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    from_config_json,
    from_gguf_metadata,
    windows_by_type,
)
from hearthd.models.decoder.experts import (
    EXPERT_GGUF_NAMES,
    EXPERT_NAMES,
    Experts,
    ExpertsConfig,
    MixtureOfExperts,
    experts_from_config_json,
    experts_from_gguf,
)
from hearthd.models.decoder.layers import Attention, Block, DecoderModel
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.dsl.functions.routing import CHOSEN
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.decoder_config import DecoderConfig
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_PERIOD = 2  # every second layer attends to the whole context
_ROPE_BASE = 150_000.0
# As in the published models: GGUF files do not state them.
_GATE_LIMIT, _GATE_SLOPE = 7.0, 1.702


@dataclass(frozen=True, kw_only=True)
class Config(ExpertsConfig):
    """The shape of a model.

    gate_limit, gate_slope  see `f.clamped_swiglu`
    """

    gate_limit: float = _GATE_LIMIT
    gate_slope: float = _GATE_SLOPE


class SinkAttention(Attention):
    """Attention with a sink for each head: a score without a value."""

    def __init__(self, config: DecoderConfig, *, scale: float | None = None) -> None:
        super().__init__(config, scale=scale)
        self.sinks = nn.parameter(config.heads, dtype=DType.F32)


class BoundedExperts(Experts):
    """Experts with gpt-oss's gate."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config = config

    @override
    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        config = self.config
        return f.clamped_swiglu(gate, up, limit=config.gate_limit, slope=config.gate_slope)


class GptOss(DecoderModel):
    """Llama's blocks with sinks and experts."""

    def __init__(self, config: Config) -> None:
        blocks = [
            Block(config, SinkAttention(config), MixtureOfExperts(config, BoundedExperts(config)))
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json, in which `intermediate_size` is the width of an expert."""
    # The defaults of transformers' GptOssConfig: files leave out what equals them.
    data.assume(attention_bias=True, rope_theta=_ROPE_BASE)
    # Older names of other keys.
    data.ignore("experts_per_token", "initial_context_length")
    fields = from_config_json(data)
    slides = [layer % _PERIOD == 0 for layer in range(fields["layers"])]
    fields = experts_from_config_json(data, fields, width="intermediate_size")
    return _config(
        fields,
        windows=windows_by_type(data, slides),
        gate_limit=data.number("swiglu_limit", default=_GATE_LIMIT),
        gate_slope=data.number("swiglu_alpha", default=_GATE_SLOPE),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = from_gguf_metadata(data, rope_base=_ROPE_BASE, truncate_yarn=False)
    slides = data.windows_by_layer(fields["layers"], _PERIOD)
    return _config(experts_from_gguf(data, fields), windows=slides)


def _config(fields: Mapping[str, Any], **more: Any) -> Config:
    fixed = {"scores": CHOSEN, "normalized": True, "expert_bias": True}
    return Config(**{**fields, **fixed, **more})


_GATE_UP, _DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
ARCHITECTURE = Architecture(
    name="gpt-oss",
    config=Config,
    model_types=("gpt_oss",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=GptOss,
    tensors=replace(
        EXPERT_NAMES,
        gguf={
            **EXPERT_GGUF_NAMES,
            "self_attn.sinks": "attn_sinks.weight",
            "post_attention_layernorm": "post_attention_norm",
        },
        folder={
            "mlp.gate": "mlp.router",
            f"{_GATE_UP}.bias": f"{_GATE_UP}_bias",
            f"{_DOWN}.bias": f"{_DOWN}_bias",
        },
        joined={_GATE_UP: ("mlp.experts.gate_proj", "mlp.experts.up_proj")},
        alternating=(_GATE_UP,),
        transposed=(_GATE_UP, _DOWN),
    ),
)
