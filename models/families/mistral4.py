"""Mistral 4: the layers of DeepSeek-V2, with queries that grow with their position.

Source: the model `mistral4` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.experts import JOINED_EXPERTS, STACKED_EXPERTS
from hearthd.models.dsl.functions.routing import SOFTMAX
from hearthd.models.families import deepseek2, mistral3
from hearthd.models.families.deepseek2 import Deepseek2

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(deepseek2.Config, mistral3.Config):
    """The shape of a model."""


class Mistral4(Deepseek2):
    """DeepSeek-V2 whose rotary tables scale queries too."""

    config: Config

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        tables = super().rope_tables(positions)
        return mistral3.with_query_scale(tables, self.config, positions)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data = mistral3.text_section(data, "mistral4")
    data.assume(first_k_dense_replace=0, norm_topk_prob=True)
    rope, _ = data.rope_section()
    rope.ignore("partial_rotary_factor")  # the share of `qk_rope_head_dim`
    fields = deepseek2.fields_from_hugging_face(data, SOFTMAX)
    return Config(**fields, **mistral3.growth(data, fields["max_context"]))


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = deepseek2.fields_from_gguf(data)
    context = data.size("attention.temperature_length", default=fields["max_context"])
    return Config(**fields, **mistral3.growth_from_gguf(data, context))


_OF_DEEPSEEK = deepseek2.ARCHITECTURE.tensors
ARCHITECTURE = Architecture(
    name="mistral4",
    config=Config,
    model_types=("mistral4", "mistral3"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Mistral4,
    tensors=replace(
        _OF_DEEPSEEK,
        prefixes=mistral3.PREFIXES,
        others=mistral3.TOWER,
        folder={**_OF_DEEPSEEK.folder, **STACKED_EXPERTS},
        joined=JOINED_EXPERTS,
        joined_in_gguf={"ffn_gate_up_exps": ("ffn_gate_exps", "ffn_up_exps")},
    ),
)
