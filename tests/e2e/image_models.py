"""Small models that read images and sound, and what tests/e2e/test_images.py asks them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.baker import (
    small_gemma3,
    small_gemma4,
    small_gemma4_sound,
    small_gemma4_unified,
    small_glm4v,
    small_internvl,
    small_lfm2vl,
    small_llava,
    small_llava_next,
    small_minicpmv,
    small_mistral3,
    small_paddleocr,
    small_qwen3vl,
    small_qwen25omni,
    small_qwen25vl,
    small_qwen35,
    small_smolvlm,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FILE = Path(__file__).parents[1] / "golden" / "image_answer.json"
LENGTH = 8
# More bytes, each of them a token, than a chunk has tokens.
_LONG = "What is this, and how is it like the two next ones? " * 3
_QUESTION = ((100, 60), _LONG, (20, 50), (9, 9), "Why?")

Item: TypeAlias = str | tuple[int, int] | int


@dataclass(frozen=True, kw_only=True)
class ImageModel:
    """A model and a question.

    write     writes its Hugging Face folder
    side      pixels of a side of a square, or of the golden image
    row_width  of a row of embeddings
    question  the texts, the width and height of the images, and the samples of the sounds, in order
    restored  positions of the question that are on disk: whole chunks
    precision  of the bundle; one with kernels rounds so little that the answer stays the same
    placeholders  generated in a row; after more of them, rounding decides which token is best
    nightly   whether it is baked at night only
    """

    write: Callable[[Path], Path]
    side: int
    row_width: int
    question: Sequence[Item]
    restored: int = 256
    precision: str = "f32"
    placeholders: int = LENGTH
    nightly: bool = True


MODELS: Mapping[str, ImageModel] = {
    "smolvlm": ImageModel(
        write=small_smolvlm.small_smolvlm,
        side=small_smolvlm.SIDE,
        row_width=small_smolvlm.CONFIG.hidden,
        question=((100, 60), "What is this?", (20, 50), "And this?"),
        precision="int8-g32",
        restored=0,
        nightly=False,
    ),
    # Longer than a chunk; the window is shorter than two images. The last image ends a chunk.
    "gemma3-images": ImageModel(
        write=small_gemma3.small_gemma3,
        side=small_gemma3.SIDE,
        row_width=small_gemma3.CONFIG.hidden,
        question=(
            (100, 60),
            _LONG,
            (20, 50),
            (70, 70),
            "And the last one?",
            (56, 56),
        ),
        precision="int8-g32",
        placeholders=3,
        restored=455,
    ),
    # Images of several shapes, first and last; one is made smaller and one larger.
    "qwen3.5-images": ImageModel(
        write=small_qwen35.small_qwen35,
        side=32,
        row_width=small_qwen35.CONFIG.hidden,
        question=(*_QUESTION, (40, 24)),
        precision="int8-g32",
    ),
    "qwen3-vl-images": ImageModel(
        write=small_qwen3vl.small_qwen3vl,
        side=32,
        row_width=3 * small_qwen3vl.CONFIG.hidden,
        question=(*_QUESTION, (56, 40)),
    ),
    # The first images are wider and higher than a window of 16 pixels.
    "qwen2.5-vl-images": ImageModel(
        write=small_qwen25vl.small_qwen25vl,
        side=32,
        row_width=small_qwen25vl.CONFIG.hidden,
        question=(*_QUESTION, (56, 40)),
    ),
    # Sounds of one window and of several, before and after images.
    "qwen2.5-omni": ImageModel(
        write=small_qwen25omni.small_qwen25omni,
        side=32,
        row_width=small_qwen25omni.CONFIG.hidden,
        question=(16_000, _LONG, (20, 50), 70_001, (100, 60), "Why?", 5_000, "And this?", (9, 9)),
        restored=384,
    ),
    "gemma4-images": ImageModel(
        write=small_gemma4.small_gemma4,
        side=48,
        row_width=small_gemma4.CONFIG.hidden,
        question=((100, 60), "What is this?", (20, 50), (9, 9), "Why?", (40, 90)),
    ),
    # The last image ends a chunk of its own.
    "gemma4-blocks": ImageModel(
        write=small_gemma4.small_gemma4_blocks,
        side=48,
        row_width=small_gemma4.CONFIG.hidden,
        question=(*_QUESTION, (40, 90)),
        restored=422,
    ),
    # A sound first, and one between images. The first and the last one end within a row.
    "gemma4-sound": ImageModel(
        write=small_gemma4_sound.small_gemma4_sound,
        side=48,
        row_width=small_gemma4_sound.CONFIG.hidden,
        question=(16_000, "What is this?", (20, 50), 70_001, (9, 9), "Why?", 5_000, "Tell me."),
    ),
    # Squares of pixels and frames of samples. The last image ends a chunk of its own.
    "gemma4-unified": ImageModel(
        write=small_gemma4_unified.small_gemma4_unified,
        side=48,
        row_width=small_gemma4_unified.CONFIG.hidden,
        question=(
            16_000,
            _LONG,
            (20, 50),
            70_001,
            (9, 9),
            "Why?",
            500,
            "And this?",
            (40, 90),
        ),
        restored=511,
    ),
    # An image in tiles first, then smaller ones; the last one is of several tiles, too.
    "lfm2-vl": ImageModel(
        write=small_lfm2vl.small_lfm2vl,
        side=32,
        row_width=small_lfm2vl.CONFIG.hidden,
        question=(*_QUESTION, (56, 130)),
    ),
    # An image in tiles first, and one that is one square last.
    "internvl": ImageModel(
        write=small_internvl.small_internvl,
        side=small_internvl.SIDE,
        row_width=small_internvl.CONFIG.hidden,
        question=((100, 60), "What is this?", (20, 50), "And this?", (9, 9)),
        restored=0,
    ),
    # Images are cropped to their middle.
    "llava": ImageModel(
        write=small_llava.small_llava,
        side=small_llava.SIDE,
        row_width=small_llava.CONFIG.hidden,
        question=((100, 60), (20, 50), "What is this?", (9, 9), "And this?"),
        precision="f32",
        restored=0,
        nightly=True,
    ),
    # The rows of tiles follow each other line by line. An image first, and one last, is cut.
    "llava1.6": ImageModel(
        write=small_llava_next.small_llava_next,
        side=small_llava.SIDE,
        row_width=small_llava.CONFIG.hidden,
        question=(*_QUESTION, (20, 70)),
        restored=384,
    ),
    # The lines of an image end with a token. An image of several lines is first and last.
    "mistral3-images": ImageModel(
        write=small_mistral3.small_mistral3,
        side=32,
        row_width=small_mistral3.CONFIG.hidden,
        question=(*_QUESTION, (40, 24)),
    ),
    # Positions of the tower's table are interpolated for each image.
    "glm4.1v-images": ImageModel(
        write=small_glm4v.small_glm4v,
        side=32,
        row_width=small_glm4v.CONFIG.hidden,
        question=(*_QUESTION, (40, 24)),
    ),
    # The tower has no learned positions.
    "glm-ocr": ImageModel(
        write=small_glm4v.small_glm_ocr,
        side=32,
        row_width=small_glm4v.OCR_CONFIG.hidden,
        question=(*_QUESTION, (40, 24)),
    ),
    # Positions of the tower's table are interpolated, beside rotary ones. Images precede the text.
    "paddleocr-vl": ImageModel(
        write=small_paddleocr.small_paddleocr,
        side=32,
        row_width=small_paddleocr.CONFIG.hidden,
        question=(*_QUESTION, (40, 24)),
    ),
    # An image in slices first, and one that is not cut; each part has the same number of rows.
    "minicpm-v": ImageModel(
        write=small_minicpmv.small_minicpmv,
        side=32,
        row_width=small_minicpmv.CONFIG.hidden,
        question=(*_QUESTION, (56, 40)),
    ),
}


def answers() -> Mapping[str, Mapping[str, Any]]:
    """By model: the tokens of the prompt, and the tokens of transformers' answer.

    `after_placeholders` are, by the kind of media, the most likely tokens where each step generates
    the token that stands for such media in a prompt.
    """
    recorded: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return recorded
