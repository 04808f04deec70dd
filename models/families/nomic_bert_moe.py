"""Nomic's BERT with experts in every second layer, biases, and MLPs without a gate.

Source: "Training Sparse Mixture Of Experts Text Embedding Models" (Nussbaum and Duderstadt, 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from hearthd.models.config import OtherFamily
from hearthd.models.decoder.experts import EXPERT_GGUF_NAMES, ExpertsConfig, MixtureOfExperts
from hearthd.models.decoder.layers import PlainMLP
from hearthd.models.decoder.tensor_names import GroupedRows, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.encoder.rotary_encoder import ROTARY_GGUF_NAMES, RotaryEncoder
from hearthd.models.families import nomic_bert
from hearthd.models.families.nomic_bert import EXPERTS_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_DOWN = "mlp.experts.down_proj"


@dataclass(frozen=True, kw_only=True)
class Config(ExpertsConfig):
    """The shape of a model.

    token_types  rows of the table of token types
    sum_bias     whether a bias is added to the sum of a token's experts
    """

    poolings: ClassVar[tuple[str, ...]] = ("mean", "last", "cls")

    token_types: int
    sum_bias: bool
    attention_bias: bool = True
    output_bias: bool = True
    mlp_bias: bool = True
    tied: bool = True


class GeluExperts(nn.Module):
    """down(gelu(up(x))) of each expert."""

    def __init__(self, config: Config) -> None:
        self.up_proj = nn.RoutedLinear(config.experts, config.hidden, config.expert_ffn)
        self.down_proj = nn.RoutedLinear(config.experts, config.expert_ffn, config.hidden)

    def __call__(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Rows (M / C, E) through the C experts of each, i32 (M,) -> (M, E)."""
        return self.down_proj(f.gelu(self.up_proj(x, chosen)), chosen)


class BiasedExperts(MixtureOfExperts):
    """The sum of a token's experts, and a bias (E,), if there is one."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, GeluExperts(config))
        bias = nn.parameter(config.hidden, dtype=DType.F32) if config.sum_bias else None
        self.bias = bias

    @override
    def __call__(self, x: Tensor) -> Tensor:
        mixed = super().__call__(x)
        if self.bias is None:
            return mixed
        # Fused with the sum over experts, the order of this one would depend on the tokens.
        mixed = ops.barrier(mixed)
        return mixed + f.along_last(self.bias, mixed)


class NomicBertMoe(RotaryEncoder):
    """The encoder."""

    def __init__(self, config: Config) -> None:
        mlps: list[Callable[[Tensor], Tensor]] = [
            BiasedExperts(config) if routed else PlainMLP(config, f.gelu)
            for routed in config.routed
        ]
        super().__init__(config, mlps, token_types=config.token_types)


def _config(fields: dict[str, Any], step: int, **experts: Any) -> Config:
    """The configuration of a model with experts in the last of `step` layers."""
    return Config(
        **fields,
        **experts,
        expert_ffn=fields["ffn"],
        routed=tuple(step > 0 and layer % step == 1 for layer in range(fields["layers"])),
        normalized=False,
    )


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    step = data.count(EXPERTS_KEY, default=0)
    if not step:
        raise OtherFamily(f"config.json: {EXPERTS_KEY} is missing in models without experts")
    data.fixed(hidden_act="gelu", activation_function="gelu")
    data.fixed(qkv_proj_bias=True, mlp_fc1_bias=True, mlp_fc2_bias=True, ffn_div=1)
    data.fixed(moe_normalize_expert_weights=False, num_shared_experts=0)
    data.fixed(expert_choice_router=False, add_pooling_layer=False)
    data.ignore("moe_impl", "moe_resid_pdrop", "router_aux_loss_coef")
    return _config(
        nomic_bert.nomic_fields(data),
        step,
        experts=data.size("num_experts"),
        experts_per_token=data.size("moe_top_k"),
        sum_bias=True,
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata. llama.cpp leaves out the bias of experts."""
    return _config(
        nomic_bert.nomic_fields_from_gguf(data),
        data.size(EXPERTS_KEY),
        experts=data.size("expert_count"),
        experts_per_token=data.size("expert_used_count"),
        sum_bias=False,
    )


ARCHITECTURE = EncoderArchitecture(
    name="nomic-bert-moe",
    config=Config,
    model_types=nomic_bert.ARCHITECTURE.model_types,
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=NomicBertMoe,
    tensors=TensorNames(
        gguf={**EXPERT_GGUF_NAMES, **ROTARY_GGUF_NAMES},
        folder={
            **nomic_bert.ARCHITECTURE.tensors.folder,
            "mlp.up_proj": "mlp.fc1",
            "mlp.gate": "mlp.router.layer",
            "mlp.bias": "mlp.experts.bias",
            "mlp.experts.up_proj.weight": "mlp.experts.mlp.w1",
            "mlp.experts.mlp.w2.weight": "mlp.experts.mlp.w2",
        },
        layers=nomic_bert.ARCHITECTURE.tensors.layers,
        prefixes=nomic_bert.ARCHITECTURE.tensors.prefixes,
        others=nomic_bert.ARCHITECTURE.tensors.others,
        # Of each expert, the transposed matrix.
        grouped=(
            GroupedRows(
                folder="mlp.experts.mlp.w2",
                gguf="",
                parts=(_DOWN,),
                shape=lambda config: (config.experts, (config.expert_ffn,)),
                transposed=(_DOWN,),
            ),
        ),
    ),
)
