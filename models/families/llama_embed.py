"""NVIDIA's embedders made of Llama, such as llama-embed-nemotron-8b: tokens see both directions.

Source: llama_bidirectional_model.py of llama-nemotron-embed-1b-v2 (NVIDIA, 2025).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.config_json import POOLING
from hearthd.models.decoder.config.decoder_config import from_config_json
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.families import eurobert
from hearthd.models.families.eurobert import Config

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson

_POOLINGS = {"avg": "mean", "cls": "cls", "last": "last"}


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json, of a model that embeds."""
    data.ignore("id2label", "label2id", "temperature")
    models = data.texts("architectures", default=())
    if any(name.endswith("ForSequenceClassification") for name in models):
        raise ConfigError("config.json: architectures: supported are models without a head")
    pooling = _POOLINGS[data.choice("pooling", _POOLINGS, default="avg")]
    fields = from_config_json(data)
    return Config(**fields | {"tied": True, "pooling": data.text(POOLING, default=pooling)})


ARCHITECTURE = replace(
    eurobert.ARCHITECTURE,
    name="llama-embed",
    model_types=("llama_bidirec",),
    read_config_json=from_hugging_face,
    tensors=TensorNames(interleaved=QUERIES_AND_KEYS),
)
