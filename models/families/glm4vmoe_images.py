"""GLM-4.5V and GLM-4.6V: GLM-4.5-Air that reads images of any size, as GLM-4.1V does.

Source: "GLM-4.5V and GLM-4.1V-Thinking" (2025), and the model `glm4v_moe` of transformers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hearthd.models.config import OtherFamily
from hearthd.models.families import glm4moe, glm4v
from hearthd.models.families.glm4v_images import (
    TowerReader,
    VisionConfig,
    gguf_image_fields,
    image_fields,
    with_tower,
)

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_TEXT = "glm4v_moe_text"


@dataclass(frozen=True, kw_only=True)
class Config(VisionConfig, glm4moe.Config):
    """The shape of a model."""


class Glm4vMoeImages(TowerReader, glm4moe.Glm4Moe):
    """GLM-4.5 with a tower."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.add_tower(config)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json; raises OtherFamily for another text model's."""
    text = glm4v.text_section(data)
    if (got := text.text("model_type", default=_TEXT)) != _TEXT:
        raise OtherFamily(f"config.json: text_config: model_type: got {got!r:.80}, not {_TEXT}")
    text.assume(attention_bias=True)
    text.ignore("router_aux_loss_coef")
    fields = asdict(glm4moe.from_hugging_face(text))
    return Config(**fields, **image_fields(data, fields["hidden"]))


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `glm4moe`, and of its projector."""
    fields = asdict(glm4moe.from_gguf(data))
    return Config(**fields, **gguf_image_fields(data, fields["hidden"]))


ARCHITECTURE = with_tower(
    glm4moe.ARCHITECTURE,
    name="glm4vmoe-images",
    config=Config,
    model_types=("glm4v_moe", "glm46v"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Glm4vMoeImages,
)
