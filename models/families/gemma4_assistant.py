"""The assistants of Gemma 4: a few of its layers, with the keys and values of another model.

Every row of the head is computed, as llama.cpp does. transformers computes those of some clusters
of tokens (`use_ordered_embeddings`), whose tables are left out.

Source: the model `gemma4_assistant` of transformers (2026); `gemma4-assistant` of llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.gemma4_config import (
    Gemma4Config,
    fields_from_gguf,
    fields_from_hugging_face,
)
from hearthd.models.dsl import nn
from hearthd.models.families import gemma4
from hearthd.models.families.gemma4 import Gemma4

if TYPE_CHECKING:
    from typing import Any

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(Gemma4Config):
    """The shape of an assistant; `backbone` is the hidden width of the model that it helps."""

    backbone: int

    @override
    def shares(self, layer: int) -> bool:
        return True

    @override
    def source(self, layer: int) -> int:
        """0: the layer with a window of the model; 1: the one without."""
        return 0 if self.windows and self.windows[layer] else 1


class Gemma4Assistant(Gemma4):
    """Layers with queries only."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.pre_projection = nn.Linear(2 * config.backbone, config.hidden)
        self.post_projection = nn.Linear(config.hidden, config.backbone)

    def assist(
        self, inputs: Tensor, position: Tensor, local: LayerCache, everywhere: LayerCache
    ) -> tuple[Tensor, Tensor]:
        """See `Assistant`."""
        y = self(position, position, [local, everywhere], self.pre_projection(inputs))
        return self.logits(y), self.post_projection(y)


def _from_hugging_face(data: ConfigJson) -> Config:
    data.ignore("use_ordered_embeddings", "num_centroids", "centroid_intermediate_top_k")
    backbone, section = data.size("backbone_hidden_size"), data.text_section()
    section.fixed(enable_moe_block=False, num_experts=None, top_k_experts=None)
    section.fixed(moe_intermediate_size=None, hidden_size_per_layer_input=0)
    return _config(fields_from_hugging_face(section), backbone)


def _from_gguf(data: GgufMetadata) -> Config:
    data.ignore("nextn_predict_layers")
    return _config(fields_from_gguf(data), data.size("embedding_length_out"))


def _config(fields: dict[str, Any], backbone: int) -> Config:
    """The configuration of the fields of Gemma 4; no layer has keys, and logits have no cap."""
    shape = {"caching_layers": fields["layers"], "keys_are_values": False, "logit_cap": None}
    return Config(**{**fields, **shape}, backbone=backbone)


_NAMES = gemma4.ARCHITECTURE.tensors
ARCHITECTURE = Architecture(
    name="gemma4-assistant",
    config=Config,
    model_types=("gemma4_assistant", "gemma4_unified_assistant"),
    read_config_json=_from_hugging_face,
    read_gguf=_from_gguf,
    model=Gemma4Assistant,
    tensors=replace(
        _NAMES,
        gguf={
            **_NAMES.gguf,
            "pre_projection": "nextn.pre_projection",
            "post_projection": "nextn.post_projection",
        },
        others=("masked_embedding.",),
    ),
)
