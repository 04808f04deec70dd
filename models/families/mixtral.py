"""Mixtral: Llama with experts in place of MLPs ("Mixtral of Experts", 2024)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.experts import (
    EXPERT_NAMES,
    ExpertsConfig,
    MixtureOfExperts,
    experts_from_config_json,
    experts_from_gguf,
)
from hearthd.models.decoder.layers import Attention, Block, DecoderModel
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


class Mixtral(DecoderModel):
    """Blocks with experts."""

    def __init__(self, config: ExpertsConfig) -> None:
        layers = range(config.layers)
        blocks = [Block(config, Attention(config), MixtureOfExperts(config)) for _ in layers]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> ExpertsConfig:
    """Read config.json. A window holds for every layer."""
    data.ignore("router_jitter_noise")
    fields = experts_from_config_json(data, from_config_json(data), width="intermediate_size")
    window = data.size("sliding_window", default=None)
    windows = (window,) * fields["layers"] if window else ()
    return ExpertsConfig(**fields | {"normalized": True}, windows=windows)


def from_gguf(data: GgufMetadata) -> ExpertsConfig:
    """Read GGUF metadata."""
    return ExpertsConfig(**experts_from_gguf(data, from_gguf_metadata(data)), normalized=True)


_PARTS = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
_NAMES = {f"mlp.experts.{part}": f"block_sparse_moe.experts.*.{_PARTS[part]}" for part in _PARTS}
_NAMES["mlp.gate"] = "block_sparse_moe.gate"
ARCHITECTURE = Architecture(
    name="mixtral",
    config=ExpertsConfig,
    model_types=("mixtral",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Mixtral,
    gguf_name="llama",
    tensors=replace(EXPERT_NAMES, interleaved=QUERIES_AND_KEYS, folder=_NAMES),
)
