"""MiniCPM-V 4.5: Qwen3 that reads images as MiniCPM-V 2.6 does.

Source: "MiniCPM-V 4.5" (Yu et al., 2025), and modeling_minicpmv.py of openbmb/MiniCPM-V-4_5. It
reads single images: its resampler adds positions of time to videos alone.
"""

from __future__ import annotations

from hearthd.models.families import minicpmv, qwen3
from hearthd.models.families.qwen2 import qwen_fields


class MiniCpmV45(qwen3.Qwen3, minicpmv.PartReader):
    """Qwen3 with a tower."""

    def __init__(self, config: minicpmv.Config) -> None:
        super().__init__(config)
        self.add_tower(config)


ARCHITECTURE = minicpmv.with_tower(
    qwen3.ARCHITECTURE,
    name="minicpmv45",
    read_config_json=minicpmv.config_reader(4.5, qwen_fields, minicpmv.Config),
    model=MiniCpmV45,
)
