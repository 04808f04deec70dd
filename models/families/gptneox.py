"""GPT-NeoX and Pythia: attention and MLP side by side, each after a LayerNorm of its own.

Source: "GPT-NeoX-20B" (2022), "Pythia" (2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.layers import Attention, Block, ParallelBlock, PlainMLP
from hearthd.models.decoder.partial_rope import (
    PartialRopeConfig,
    PartialRopeModel,
    partial_fields,
    partial_fields_from_gguf,
)
from hearthd.models.decoder.tensor_names import JOINED_HEADS, TensorNames, heads_by_key
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_SHARE = 0.25  # of the columns of a head that turn


@dataclass(frozen=True, kw_only=True)
class Config(PartialRopeConfig):
    """The shape of a model; `parallel`: whether attention and MLP are side by side."""

    parallel: bool


class GptNeoX(PartialRopeModel):
    """Blocks with LayerNorm and an MLP without a gate."""

    config: Config

    def __init__(self, config: Config) -> None:
        block = partial(ParallelBlock, norms=2) if config.parallel else Block
        blocks = [
            block(config, Attention(config), PlainMLP(config, f.gelu), nn.LayerNorm)
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. GPT-NeoX-20B itself, with another activation, is not supported."""
    data.rename(
        layer_norm_eps="rms_norm_eps",
        rotary_emb_base="rope_theta",
        rotary_pct="partial_rotary_factor",
    )
    data.assume(rms_norm_eps=1e-5, attention_bias=True)
    data.ignore("classifier_dropout", "hidden_dropout", "is_decoder")
    fields = partial_fields(data, _SHARE, activation="gelu")
    parallel = data.flag("use_parallel_residual", default=True)
    return Config(**fields | {"mlp_bias": True}, parallel=parallel)


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = partial_fields_from_gguf(data, _SHARE)
    return Config(**fields, parallel=data.flag("use_parallel_residual", default=True))


ARCHITECTURE = Architecture(
    name="gptneox",
    config=Config,
    model_types=("gpt_neox",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=GptNeoX,
    tensors=TensorNames(
        prefixes=("gpt_neox.", ""),
        folder={
            "self_attn.o_proj": "attention.dense",
            "mlp.up_proj": "mlp.dense_h_to_4h",
            "mlp.down_proj": "mlp.dense_4h_to_h",
            "embed_tokens": "embed_in",
            "norm": "final_layer_norm",
            "lm_head": "embed_out",
        },
        masks=("attention.bias", "attention.masked_bias"),
        grouped=(JOINED_HEADS, heads_by_key("attention.query_key_value")),
    ),
)
