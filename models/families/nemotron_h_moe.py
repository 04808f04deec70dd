"""Nemotron-H with layers of experts, as in Nemotron 3 Nano 30B-A3B.

Source: the model `nemotron_h` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.experts import (
    ExpertsConfig,
    MixtureOfExperts,
    experts_from_gguf,
    mixture,
)
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.dsl.functions.routing import SIGMOID
from hearthd.models.families import nemotron_h
from hearthd.models.families.nemotron_h import KINDS, MLP, NemotronH, SquaredMLP

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.layers import Layer
    from hearthd.models.dsl.graph import Tensor

EXPERTS = "moe"
_SUM_OFFSET = 1e-20


@dataclass(frozen=True, kw_only=True)
class Config(nemotron_h.Config, ExpertsConfig):
    """The shape of a model; `latent` is the width of what experts read, if not the hidden one."""

    by_layer = (*nemotron_h.Config.by_layer, "routed")

    latent: int | None = None


class SquaredExperts(nn.Module):
    """down(relu(up(x))^2) of each expert."""

    def __init__(self, config: Config) -> None:
        width = config.latent or config.hidden
        self.up_proj = nn.RoutedLinear(config.experts, width, config.expert_ffn)
        self.down_proj = nn.RoutedLinear(config.experts, config.expert_ffn, width)

    def __call__(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Rows (M / C, E) through the C experts of each, i32 (M,) -> (M, E)."""
        return self.down_proj(f.squared_relu(self.up_proj(x, chosen)), chosen)


class LatentExperts(MixtureOfExperts):
    """Experts that read a projection of the hidden states, and a shared MLP that reads these."""

    def __init__(self, config: Config) -> None:
        assert config.shared_ffn is not None, "files have a shared MLP"
        shared = SquaredMLP(replace(config, ffn=config.shared_ffn))
        super().__init__(config, SquaredExperts(config), shared)
        width, hidden = config.latent, config.hidden
        self.fc1_latent_proj = None if width is None else nn.Linear(hidden, width)
        self.fc2_latent_proj = None if width is None else nn.Linear(width, hidden)

    @override
    def __call__(self, x: Tensor, *_: object) -> Tensor:
        if self.fc1_latent_proj is None or self.fc2_latent_proj is None:
            return super().__call__(x)
        mixed = mixture(self.fc1_latent_proj(x), self.experts, *self.routes(x))
        assert self.shared_experts is not None
        return self.fc2_latent_proj(mixed) + self.shared_experts(x)


class NemotronHMoe(NemotronH):
    """Nemotron-H's blocks, some with experts."""

    @override
    def mixer(self, config: nemotron_h.Config, kind: str) -> Layer:
        assert isinstance(config, Config), "experts need their configuration"
        return LatentExperts(config) if kind == EXPERTS else super().mixer(config, kind)


def _config(fields: dict[str, Any]) -> Config:
    routed = tuple(kind == EXPERTS for kind in fields["kinds"])
    if not any(routed):
        raise ConfigError("layers_block_type: got no layer with experts, expected at least one")
    return Config(
        **fields | {"routed": routed, "scores": SIGMOID, "choice_bias": True},
        sum_offset=_SUM_OFFSET,
    )


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.fixed(n_group=1, topk_group=1, n_shared_experts=1, mlp_bias=False)
    experts = {
        "experts": data.size("n_routed_experts"),
        "experts_per_token": data.size("num_experts_per_tok"),
        "expert_ffn": data.size("moe_intermediate_size"),
        "shared_ffn": data.size("moe_shared_expert_intermediate_size"),
        "latent": data.size("moe_latent_size", default=None),
        "normalized": data.flag("norm_topk_prob", default=True),
        "factor": data.number("routed_scaling_factor", default=1.0),
    }
    names = {**KINDS, EXPERTS: EXPERTS, "E": EXPERTS}
    return _config(nemotron_h.fields_from_hugging_face(data, names) | experts)


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata, where layers with experts are those with an MLP width."""
    for key in ("expert_group_count", "expert_group_used_count"):
        data.fixed(key, 1)
    fields = experts_from_gguf(data, nemotron_h.fields_from_gguf(data))
    kinds = tuple(EXPERTS if kind == MLP else kind for kind in fields["kinds"])
    return _config(
        fields
        | {
            "kinds": kinds,
            "latent": data.size("moe_latent_size", default=None),
            "normalized": data.flag("expert_weights_norm", default=False),
            "factor": data.number("expert_weights_scale", default=1.0),
        }
    )


_OF_NEMOTRON_H = nemotron_h.ARCHITECTURE.tensors
_PARTS = ("up", "down")
ARCHITECTURE = Architecture(
    name="nemotron_h_moe",
    config=Config,
    model_types=("nemotron_h",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=NemotronHMoe,
    tensors=replace(
        _OF_NEMOTRON_H,
        gguf={
            **_OF_NEMOTRON_H.gguf,
            "mixer.gate": "ffn_gate_inp",
            "mixer.choice": "exp_probs_b",
            **{f"mixer.experts.{part}_proj": f"ffn_{part}_exps" for part in _PARTS},
            **{f"mixer.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in _PARTS},
            "mixer.fc1_latent_proj": "ffn_latent_down",
            "mixer.fc2_latent_proj": "ffn_latent_up",
        },
        folder={
            **_OF_NEMOTRON_H.folder,
            "mixer.choice.bias": "mixer.gate.e_score_correction_bias",
            **{f"mixer.experts.{part}_proj": f"mixer.experts.*.{part}_proj" for part in _PARTS},
        },
    ),
)
