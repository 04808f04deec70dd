"""Gemma 4 with experts: they and an MLP read the same hidden states, and are added.

Source: the model `gemma4_text` of transformers (2026), with `enable_moe_block`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder import gemma4_config
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.experts import (
    Experts,
    ExpertsConfig,
    experts_from_gguf,
    mixture,
)
from hearthd.models.decoder.gemma4_config import Gemma4Config
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType
from hearthd.models.families import gemma4
from hearthd.models.families.gemma4 import Gemma4, Gemma4Block

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(Gemma4Config, ExpertsConfig):
    """The shape of a model."""

    by_layer = (*Gemma4Config.by_layer, "routed")


class ExpertScales(nn.Module):
    """A number for each expert, which multiplies its factor: (X,)."""

    def __init__(self, experts: int) -> None:
        self.scale = nn.parameter(experts, dtype=DType.F32)


class Router(nn.Module):
    """The choice of experts by normalized hidden states."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.proj = nn.Linear(config.hidden, config.experts)
        self.scale = nn.parameter(config.hidden, dtype=DType.F32)
        self.per_expert = ExpertScales(config.experts)

    def __call__(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """(N, E) -> the factors of each token's experts f32 (N, C), and the experts i32 (N, C)."""
        config = self.config
        x = f.rms_norm(h, self.scale, eps=config.norm_eps) * config.hidden**-0.5
        logits = ops.barrier(f.router_logits(x, self.proj.weight))
        chosen = f.top_indices(logits, count=config.experts_per_token)
        factors = f.expert_factors(
            logits,
            chosen,
            self.per_expert.scale,
            scores=f.CHOSEN,
            normalized=False,
            sum_offset=0.0,
            min_sum=0.0,
            factor=1.0,
        )
        return factors, chosen


class MoeBlock(Gemma4Block):
    """A layer of Gemma 4 whose MLP and experts have norms of their own."""

    def __init__(self, config: Config, index: int) -> None:
        super().__init__(config, index)
        self.router = Router(config)
        self.experts = Experts(config, f.gelu_tanh)
        self.post_feedforward_layernorm_1 = nn.RMSNorm(config.hidden, config.norm_eps)
        self.pre_feedforward_layernorm_2 = nn.RMSNorm(config.hidden, config.norm_eps)
        self.post_feedforward_layernorm_2 = nn.RMSNorm(config.hidden, config.norm_eps)

    @override
    def __call__(self, h: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        x = self.input_layernorm(h)
        x = self.self_attn(x, rope, cache)
        h = h + self.post_attention_layernorm(x)
        x = self.mlp(self.pre_feedforward_layernorm(h))
        y = mixture(self.pre_feedforward_layernorm_2(h), self.experts, *self.router(h))
        x = self.post_feedforward_layernorm_1(x) + self.post_feedforward_layernorm_2(y)
        return h + self.post_feedforward_layernorm(x)


class Gemma4Moe(Gemma4):
    """Layers of two shapes, with experts."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, [MoeBlock(config, index) for index in range(config.layers)])


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    return Config(**fields_from_hugging_face(data.text_section()))


def fields_from_hugging_face(data: ConfigJson) -> dict[str, Any]:
    """The fields of `Config` from the text model's part of config.json; raises ConfigError."""
    if not data.flag("enable_moe_block", default=False):
        raise ConfigError("config.json: enable_moe_block: got false, supported is true")
    fields = gemma4_config.fields_from_hugging_face(data)
    return _with_experts(
        **fields,
        experts=data.size("num_experts"),
        experts_per_token=data.size("top_k_experts"),
        expert_ffn=data.size("moe_intermediate_size"),
        routed=(True,) * fields["layers"],
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    return Config(**fields_from_gguf(data))


def fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config` from GGUF metadata; raises ConfigError."""
    return _with_experts(**experts_from_gguf(data, gemma4_config.fields_from_gguf(data)))


def _with_experts(**fields: Any) -> dict[str, Any]:
    if fields["layer_embedding"] is not None:
        raise ConfigError(
            f"hidden_size_per_layer_input: got {fields['layer_embedding']}, supported is 0 with "
            "experts"
        )
    return {**fields, "normalized": True}


_OF_GEMMA_4 = gemma4.ARCHITECTURE.tensors

ARCHITECTURE = Architecture(
    name="gemma4-moe",
    config=Config,
    model_types=("gemma4_text", "gemma4"),
    gguf_name="gemma4",
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Gemma4Moe,
    tensors=replace(
        _OF_GEMMA_4,
        gguf={
            **_OF_GEMMA_4.gguf,
            "router": "ffn_gate_inp",
            "router.proj": "ffn_gate_inp",
            "router.per_expert": "ffn_down_exps",
            "experts.gate_proj": "ffn_gate_exps",
            "experts.up_proj": "ffn_up_exps",
            "experts.down_proj": "ffn_down_exps",
            "post_feedforward_layernorm_1": "post_ffw_norm_1",
            "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
            "post_feedforward_layernorm_2": "post_ffw_norm_2",
        },
        folder={
            **_OF_GEMMA_4.folder,
            "router.per_expert.scale": "router.per_expert_scale",
            "experts.gate_up_proj.weight": "experts.gate_up_proj",
            "experts.down_proj.weight": "experts.down_proj",
        },
        joined={"experts.gate_up_proj": ("experts.gate_proj", "experts.up_proj")},
        joined_in_gguf={"ffn_gate_up_exps": ("ffn_gate_exps", "ffn_up_exps")},
    ),
)
