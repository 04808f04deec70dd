"""XLM-RoBERTa: BERT whose positions start after the padding token's, and with other names.

Source: "Unsupervised Cross-lingual Representation Learning at Scale" (Conneau et al., 2019).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.config import OtherFamily
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.families import bert
from hearthd.models.families.bert import NAMES, Bert, Config, config_fields

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson

_PADDING = 1


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json; the first token's row of positions follows padding's."""
    if data.text("position_embedding_type", default="absolute") == "rotary":
        raise OtherFamily("config.json: position_embedding_type: 'rotary' is Jina's")
    fields = config_fields(data)
    skipped = data.count("pad_token_id", default=_PADDING) + 1
    fields |= {"max_context": fields["max_context"] - skipped, "skipped": skipped}
    return Config(**fields)


ARCHITECTURE = EncoderArchitecture(
    name="xlm-roberta",
    config=Config,
    model_types=("xlm-roberta", "roberta"),
    read_config_json=from_hugging_face,
    read_gguf=bert.from_gguf,
    model=Bert,
    tensors=replace(
        NAMES,
        folder={**NAMES.folder, "pooler": "classifier.dense", "classifier": "classifier.out_proj"},
        prefixes=("", "roberta."),
        others=("pooler.", "lm_head.", "embeddings.position_ids"),
    ),
)
