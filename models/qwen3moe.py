"""Qwen3-MoE: Qwen3 with experts in the place of MLPs ("Qwen3 Technical Report", 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.decoder.architecture import Architecture
from models.decoder.decoder_config import from_config_json, from_gguf_metadata
from models.decoder.experts import ExpertsConfig, MixtureOfExperts
from models.decoder.layers import MLP, Block, DecoderModel, NormedAttention
from models.decoder.tensor_names import GGUF_NAMES, TensorNames

if TYPE_CHECKING:
    from models.decoder.config_json import ConfigJson
    from models.decoder.gguf_metadata import GgufMetadata


class Qwen3Moe(DecoderModel):
    """Blocks with normalised heads; some have experts, and the others an MLP."""

    def __init__(self, config: ExpertsConfig) -> None:
        blocks = [
            Block(
                config,
                NormedAttention(config),
                MixtureOfExperts(config) if routed else MLP(config),
            )
            for routed in config.routed
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> ExpertsConfig:
    """Read config.json. A window holds for every layer."""
    data.ignore("max_window_layers", "output_router_logits", "router_aux_loss_coef")
    fields = from_config_json(data)
    layers = fields["layers"]
    slides = data.flag("use_sliding_window", default=False)
    window = data.size("sliding_window", default=None)
    dense = data.counts("mlp_only_layers", default=())
    step = data.size("decoder_sparse_step", default=1)
    renamed = data.size("num_local_experts", default=None)  # as transformers 5 writes it
    return ExpertsConfig(
        **fields,
        windows=(window,) * layers if slides and window else (),
        experts=renamed or data.size("num_experts"),
        experts_per_token=data.size("num_experts_per_tok"),
        expert_ffn=data.size("moe_intermediate_size"),
        routed=tuple(i not in dense and (i + 1) % step == 0 for i in range(layers)),
        normalized=data.flag("norm_topk_prob", default=False),
    )


def from_gguf(data: GgufMetadata) -> ExpertsConfig:
    """Read GGUF metadata: in llama.cpp every layer has experts, and factors are normalized."""
    fields = from_gguf_metadata(data)
    return ExpertsConfig(
        **fields,
        experts=data.size("expert_count"),
        experts_per_token=data.size("expert_used_count"),
        expert_ffn=data.size("expert_feed_forward_length"),
        routed=(True,) * fields["layers"],
        normalized=True,
    )


_PARTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}

ARCHITECTURE = Architecture(
    name="qwen3moe",
    config=ExpertsConfig,
    model_types=("qwen3_moe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen3Moe,
    tensors=TensorNames(
        gguf={
            **GGUF_NAMES,
            "mlp.gate": "ffn_gate_inp",
            **{f"mlp.experts.{part}": f"ffn_{name}_exps" for part, name in _PARTS.items()},
        },
        folder={f"mlp.experts.{part}": f"mlp.experts.*.{part}" for part in _PARTS},
    ),
)
