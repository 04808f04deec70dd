"""InternVL 3.5: Qwen3 that reads images as InternVL 3 does.

Source: "InternVL3.5" (Wang et al., 2025), and the model `internvl` of transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.families import internvl, qwen3
from hearthd.models.towers import internvit

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.dsl.graph import Tensor


class InternVl35(qwen3.Qwen3):
    """Qwen3 with a tower for images of one size."""

    def __init__(self, config: internvl.Config) -> None:
        super().__init__(config)
        self.tower = internvit.Tower(config)
        self.projector = internvit.Projector(config, config.hidden)

    def read_image(self, pixels: Tensor) -> Tensor:
        """Pixels f32 (3, S, S), normalized -> rows of embeddings (rows, E)."""
        return self.projector(self.tower(pixels))


def from_hugging_face(data: ConfigJson) -> internvl.Config:
    """Read config.json."""
    return internvl.Config(**internvl.text_fields(data, "qwen3"), **internvit.tower_fields(data))


ARCHITECTURE = internvl.with_tower(
    qwen3.ARCHITECTURE,
    name="internvl35",
    config=internvl.Config,
    read_config_json=from_hugging_face,
    read_gguf=lambda data: internvl.Config(**internvl.gguf_fields(data)),
    model=InternVl35,
)
