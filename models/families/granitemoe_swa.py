"""Granite Swash with Granite 3's experts in each block.

Source: the model `granitemoe_swa` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.experts import MixtureOfExperts
from hearthd.models.families import granite, granite_swa, granitemoe
from hearthd.models.families.granite_swa import GraniteSwa, sink_attention, with_windows_of_gguf


@dataclass(frozen=True, kw_only=True)
class Config(granite_swa.Config, granitemoe.Config):
    """The shape of a model."""

    by_layer = (*granitemoe.Config.by_layer, "rope_bases")


class GraniteMoeSwa(GraniteSwa):
    """Granite Swash's blocks with experts."""

    @override
    def block(self, config: granite_swa.Config) -> granite.GraniteBlock:
        assert isinstance(config, Config), "experts need their configuration"
        return granite.GraniteBlock(config, MixtureOfExperts(config), sink_attention(config))


_GATE_UP = "mlp.experts.gate_up_proj"
_OF_EXPERTS, _OF_SINKS = granitemoe.ARCHITECTURE.tensors, granite_swa.ARCHITECTURE.tensors
ARCHITECTURE = Architecture(
    name="granitemoe_swa",
    config=Config,
    model_types=("granitemoe_swa",),
    gguf_name="granite_swa",
    read_config_json=lambda data: Config(
        **granite_swa.with_windows(
            data, granitemoe.with_experts(data, granite.fields_from_hugging_face(data))
        )
    ),
    read_gguf=lambda data: Config(**with_windows_of_gguf(data, granitemoe.fields_from_gguf(data))),
    model=GraniteMoeSwa,
    tensors=replace(
        _OF_EXPERTS,
        gguf={**_OF_EXPERTS.gguf, **_OF_SINKS.gguf},
        folder={
            "mlp.gate": "block_sparse_moe.router",
            f"{_GATE_UP}.weight": "block_sparse_moe.experts.gate_up_proj",
            "mlp.experts.down_proj.weight": "block_sparse_moe.experts.down_proj",
        },
        joined={**_OF_EXPERTS.joined, _GATE_UP: ("mlp.experts.gate_proj", "mlp.experts.up_proj")},
        joined_in_gguf={
            "ffn_gate_up_exps": ("ffn_gate_exps", "ffn_up_exps"),
            "ffn_up_shexp": ("ffn_gate_shexp", "ffn_up_shexp"),
        },
    ),
)
