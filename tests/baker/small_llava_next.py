"""A LLaVA 1.6 of two layers with random weights and a token for each byte."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from hearthd.models.families.llava_next import ARCHITECTURE, Config
from tests.baker import small_llava
from tests.baker.small_llava import SIDE
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = Config(**asdict(small_llava.CONFIG))
# Heights and widths of layouts, in pixels, as the published models have them.
_LAYOUTS = ((1, 2), (2, 1), (2, 2), (3, 1), (1, 3))
PINPOINTS = [[rows * SIDE, columns * SIDE] for rows, columns in _LAYOUTS]


def small_llava_next(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    tensors = small_tensors(
        ARCHITECTURE, CONFIG, name=small_llava.published, shape=small_llava.shape_in_files
    )
    config = small_llava.config() | {
        "architectures": ["LlavaNextForConditionalGeneration"],
        "model_type": "llava_next",
        "image_grid_pinpoints": PINPOINTS,
        "use_image_newline_parameter": True,
    }
    processor = small_llava.processor() | {
        "aspect_ratio_setting": "anyres",
        "do_pad": True,
        "image_grid_pinpoints": PINPOINTS,
        "image_processor_type": "LlavaNextImageProcessor",
        "processor_class": "LlavaNextProcessor",
    }
    write_model(folder, tensors, config, processor, small_llava.TEMPLATE, small_llava.SPECIAL)
    return folder
