"""Jamba: Mamba in most layers, attention without positions in the others; experts in some.

Source: "Jamba" (AI21, 2024), and Jamba Reasoning 3B (2025), which has no experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.experts import EXPERT_GGUF_NAMES, ExpertsConfig, feed_forward
from hearthd.models.decoder.layers import Attention, Block, DecoderModel
from hearthd.models.decoder.recurrent import mamba
from hearthd.models.decoder.recurrent.shared_layers import GroupedNorm
from hearthd.models.decoder.tensor_names import TensorNames

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import StateRows
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(mamba.MambaConfig, ExpertsConfig):
    """The shape of a model; `attends` says of each layer whether it has attention."""

    by_layer = (*ExpertsConfig.by_layer, "attends")

    attends: tuple[bool, ...]

    @override
    def rotates(self, _: int) -> bool:
        return False


class NormedMamba(mamba.Mamba):
    """Mamba that normalizes time steps, keys and queries."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        # Norms that have a kernel: others would round by the number of tokens.
        self.steps_norm = GroupedNorm(config.step_rank, 1, config.norm_eps)
        self.key_norm = GroupedNorm(config.ssm_state, 1, config.norm_eps)
        self.query_norm = GroupedNorm(config.ssm_state, 1, config.norm_eps)

    @override
    def normed(self, steps: Tensor, key: Tensor, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.steps_norm(steps), self.key_norm(key), self.query_norm(query)


class Jamba(DecoderModel):
    """Blocks with Mamba or attention, and with an MLP or experts."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [
            Block(
                config,
                Attention(config) if attends else NormedMamba(config),
                feed_forward(config, layer),
            )
            for layer, attends in enumerate(config.attends)
        ]
        super().__init__(config, blocks)

    @override
    def states(self, layer: int) -> tuple[StateRows, ...]:
        return () if self.config.attends[layer] else self.config.states


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.fixed(mamba_conv_bias=True, mamba_inner_layernorms=True, mamba_proj_bias=False)
    data.ignore(
        "calc_logits_for_entire_prompt", "n_ctx", "num_logits_to_keep", "output_router_logits",
        "router_aux_loss_coef", "use_associative_scan", "use_mamba_kernels", "use_mambapy",
    )  # fmt: skip
    fields = from_config_json(data)
    experts = data.size("num_experts", default=16)
    period = data.size("expert_layer_period", default=2)
    expert_offset = data.count("expert_layer_offset", default=1)
    spacing = data.size("attn_layer_period", default=8)
    offset = data.count("attn_layer_offset", default=4)
    layers = range(fields["layers"])
    return Config(
        **fields,
        attends=tuple(layer % spacing == offset for layer in layers),
        ssm_inner=data.size("mamba_expand", default=2) * fields["hidden"],
        ssm_state=data.size("mamba_d_state", default=16),
        step_rank=data.size("mamba_dt_rank", default=-(-fields["hidden"] // 16)),
        taps=data.size("mamba_d_conv", default=4),
        experts=experts,
        experts_per_token=min(experts, data.size("num_experts_per_tok", default=2)),
        expert_ffn=fields["ffn"],
        routed=tuple(experts > 1 and layer % period == expert_offset for layer in layers),
        normalized=False,
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata, where a layer of Mamba has 0 key/value heads."""
    kv_heads = data.counts("attention.head_count_kv")
    fields = from_gguf_metadata(data, kv_heads=max(kv_heads, default=0) or 1)
    experts = data.size("expert_count")
    layers = range(fields["layers"])
    return Config(
        **fields | dict.fromkeys(("attention_bias", "output_bias", "mlp_bias"), False),
        **mamba.gguf_fields(data),
        attends=tuple(count > 0 for count in kv_heads),
        experts=experts,
        experts_per_token=min(experts, data.size("expert_used_count")),
        expert_ffn=fields["ffn"],
        routed=tuple(data.has_tensor(f"blk.{layer}.ffn_gate_inp.weight") for layer in layers),
        normalized=False,
    )


_GGUF, _FOLDER = mamba.tensor_names("self_attn", "mamba")
_NORMS = {"steps_norm": "dt", "key_norm": "b", "query_norm": "c"}
_PARTS = ("gate_proj", "up_proj", "down_proj")
ARCHITECTURE = Architecture(
    name="jamba",
    config=Config,
    model_types=("jamba",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Jamba,
    tensors=TensorNames(
        gguf={
            **EXPERT_GGUF_NAMES,
            **_GGUF,
            **{f"self_attn.{ours}": f"ssm_{theirs}_norm" for ours, theirs in _NORMS.items()},
        },
        folder={
            **_FOLDER,
            **{f"self_attn.{ours}": f"mamba.{theirs}_layernorm" for ours, theirs in _NORMS.items()},
            **{f"mlp.{part}": f"feed_forward.{part}" for part in _PARTS},
            **{f"mlp.experts.{part}": f"feed_forward.experts.*.{part}" for part in _PARTS},
            "mlp.gate": "feed_forward.router",
            "post_attention_layernorm": "pre_ff_layernorm",
            "norm": "final_layernorm",
        },
        logarithms=("self_attn.rates",),
        transposed_in_folder=("self_attn.rates.weight",),
        transposed_in_gguf=("self_attn.rates",),
    ),
)
