"""Maple: Qwen3-MoE with windows in most layers, whose positions the others lack, and limited gates.

Source: modeling_maple.py of maple-preview (DeepGrove, 2026), and the model `maple` of llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import not_every_nth, windows_by_type
from hearthd.models.decoder.experts import (
    EXPERT_FOLDER_NAMES,
    EXPERT_GGUF_NAMES,
    Experts,
    ExpertsConfig,
    MixtureOfExperts,
    experts_from_config_json,
    experts_from_gguf,
)
from hearthd.models.decoder.layers import Block, NormedAttention
from hearthd.models.decoder.partial_rope import (
    PartialRopeConfig,
    PartialRopeModel,
    partial_fields,
    partial_fields_from_gguf,
)
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

_LIMIT, _PERIOD, _SHARE = 7.0, 4, 0.5
# Keys about training, and keys that the published code does not read.
_UNREAD = (
    "bdlm_block_size", "bdlm_sampling_eps", "mask_token_id", "preaffine", "qat_ternary", "quantize",
    "router_dtype", "training_objective",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(PartialRopeConfig, ExpertsConfig):
    """The shape of a model; `gate_limit` bounds gates, and what they multiply to both sides."""

    by_layer = ExpertsConfig.by_layer

    gate_limit: float = _LIMIT


class LimitedGateExperts(Experts):
    """Experts whose gates are limited before their activation."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.limit = config.gate_limit

    @override
    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        bounded = ops.minimum(gate, ops.full_like(gate, self.limit))
        return f.silu(bounded) * f.clamp(up, -self.limit, self.limit)


class Maple(PartialRopeModel):
    """Blocks with normalized heads and experts."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [
            Block(
                config,
                NormedAttention(config),
                MixtureOfExperts(config, LimitedGateExperts(config)),
            )
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        tables = super().rope_tables(positions)
        return [None if self.window(layer) is None else table for layer, table in enumerate(tables)]


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.fixed(nope_on_global_attention=True, num_shared_experts=0, use_bias=False)
    data.fixed(use_qk_norm=True, moe_router_enable_expert_bias=False)
    data.ignore(*_UNREAD)
    data.assume(norm_topk_prob=True)
    fields = experts_from_config_json(data, partial_fields(data, _SHARE))
    slides = not_every_nth(_PERIOD, fields["layers"])
    return _config({**fields, "windows": windows_by_type(data, slides)})


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata; in llama.cpp the scores of a token's experts are normalized."""
    fields = experts_from_gguf(data, partial_fields_from_gguf(data, 1.0))
    base = data.number("rope.freq_base_swa", default=fields["rope_base"])
    limits = {*data.factors("swiglu_clamp_exp", default=())}
    if len(limits) != 1:
        raise ConfigError(f"swiglu_clamp_exp: got limits {sorted(limits)!r:.80}, supported is one")
    return _config(
        {
            **fields,
            "rope_base": base,
            "windows": data.windows_by_layer(fields["layers"]),
            "normalized": True,
            "gate_limit": limits.pop(),
        }
    )


def _config(fields: dict[str, Any]) -> Config:
    """The configuration; raises ConfigError where no layer has a window."""
    if not fields["windows"]:
        raise ConfigError("layer_types: expected layers with a window, got none")
    return Config(**fields)


ARCHITECTURE = Architecture(
    name="maple",
    config=Config,
    model_types=("maple",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Maple,
    tensors=TensorNames(
        gguf=EXPERT_GGUF_NAMES,
        folder={**EXPERT_FOLDER_NAMES, "embed_tokens": "word_embeddings"},
    ),
)
