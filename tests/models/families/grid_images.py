"""Prompts with images of several sizes, and what transformers computes for cases that read them.

    python -m tests.models.families.grid_images
    python -m tests.models.families.grid_images lfm2-vl-tied

records all of them, or those named.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.models.families.cases import CASES
from tests.models.families.image_cases import QWEN_TOWER
from tests.models.families.images import is_grid
from tests.models.families.media_recording import Recorded, read_recording, record, with_answer

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILE = Path(__file__).parents[2] / "golden" / "grid_images.npz"
GRID_NAMES = tuple(name for name, case in CASES.items() if is_grid(case))
IMAGE, START, END = (
    QWEN_TOWER[f"{token}_id"] for token in ("image_token", "vision_start_token", "vision_end_token")
)
# Rows and columns of the rows of embeddings of each image.
GRIDS = ((2, 3), (1, 1), (3, 5), (1, 4))
_TEXTS = ((), (5, 17, 80), (), (7, 41, 2, 9), (33,))


def rows_of(name: str) -> list[int]:
    """The rows of embeddings of each image of a case."""
    return [CASES[name].tower.get("query_num", math.prod(grid)) for grid in GRIDS]


def prompt_of(name: str) -> tuple[int, ...]:
    """An image first, two side by side, and one before the last token."""
    ids = [*_TEXTS[0]]
    for rows, text in zip(rows_of(name), _TEXTS[1:], strict=True):
        ids += [START, *(IMAGE,) * rows, END, *text]
    return tuple(ids)


def sizes_of(name: str) -> tuple[int, int]:
    """Pixels of a side of a patch of a case, and patches of a side of a square."""
    tower = CASES[name].tower
    vision = tower["vision_config"]
    usual = 1 if CASES[name].config in ("LlavaConfig", "MiniCPMVConfig") else 2
    merged = tower.get("downsample_factor", vision.get("pooling_kernel_size", usual))
    return vision["patch_size"], merged


def pixels(name: str) -> list[NDArray[np.uint8]]:
    """The images for a case, u8 (H, W, 3)."""
    rng, side = np.random.default_rng(11), math.prod(sizes_of(name))
    return [
        rng.integers(0, 256, (rows * side, columns * side, 3), np.uint8) for rows, columns in GRIDS
    ]


def recorded(name: str) -> Recorded:
    """The recording of a case: `rows` has the rows of all images, one after the other."""
    return read_recording(FILE, name)


def processor_of(name: str) -> Any:
    """transformers' processor for a case, which resizes no image."""
    from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
    from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import (
        PaddleOCRVLImageProcessorPil,
    )
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
        Qwen2VLImageProcessorPil,
    )
    from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

    patch, merged = sizes_of(name)
    half = [0.5] * 3
    options = {"patch_size": patch, "image_mean": half, "image_std": half, "do_resize": False}
    if CASES[name].config.startswith("Paddle"):
        return PaddleOCRVLImageProcessorPil(
            merge_size=merged, patch_size=patch, temporal_patch_size=1, do_resize=False
        )
    if CASES[name].config.startswith(("Glm", "Qwen2")):
        return Qwen2VLImageProcessorPil(merge_size=merged, patch_size=patch, do_resize=False)
    if CASES[name].config.startswith("Qwen"):
        return Qwen2VLImageProcessorPil(merge_size=merged, **options)
    if CASES[name].config in ("LightOnOcrConfig", "LlavaConfig", "Mistral3Config"):
        return PixtralImageProcessorPil(patch_size=patch, do_resize=False)
    if CASES[name].config.startswith("Gemma4"):
        return Gemma4ImageProcessorPil(
            patch_size=patch, pooling_kernel_size=merged, max_soft_tokens=70, do_resize=False
        )
    most = max(map(math.prod, GRIDS)) * merged**2
    return Siglip2ImageProcessorPil(max_num_patches=most, **options)


def squares(images: list[NDArray[np.uint8]], side: int) -> dict[str, Any]:
    """What Gemma4UnifiedImageProcessor makes of images, which needs torchvision.

    A square has the values of its pixels from 0 to 1, with the channels side by side. `places` are
    columns and rows; padding has -1.
    """
    import torch

    grids = [(image.shape[0] // side, image.shape[1] // side) for image in images]
    most = max(map(math.prod, grids))
    values = np.zeros((len(images), most, side * side * 3), np.float32)
    places = np.full((len(images), most, 2), -1)
    for index, (image, (rows, columns)) in enumerate(zip(images, grids, strict=True)):
        cut = image.reshape(rows, side, columns, side, 3).swapaxes(1, 2)
        values[index, : rows * columns] = cut.reshape(rows * columns, -1) / np.float32(255)
        places[index, : rows * columns] = np.argwhere(np.ones((rows, columns)))[:, ::-1]
    return {"pixel_values": torch.tensor(values), "image_position_ids": torch.tensor(places)}


def see_each_other_within_windows() -> None:
    """Give Gemma 4 Unified the masks of Gemma 4: the rows of an image see each other in windows.

    So has it Google's implementation, and transformers when it prepares masks for `generate`. Its
    call lets them see each other in all layers: see issue 46711 of transformers.
    """
    from transformers.models.gemma4_unified import modeling_gemma4_unified as model

    model.create_masks_for_generate = model.create_masks_for_vision_model


def computed(name: str, folder: Path) -> Recorded:
    """What transformers computes with the model in a folder, and the pixels of its processor."""
    import torch

    from tests.models.families import oracle

    if CASES[name].config == "MiniCPMVConfig":
        model = oracle.in_pytorch(folder)
        found: Recorded = model.recorded(prompt_of(name), IMAGE, pixels(name))
        return found
    model = oracle.load(folder)
    if CASES[name].config == "Gemma4UnifiedConfig":
        see_each_other_within_windows()
        read = squares(pixels(name), math.prod(sizes_of(name)))
    else:
        read = processor_of(name)(pixels(name), return_tensors="pt")
    read.pop("num_soft_tokens_per_image", None)
    ids = torch.tensor([prompt_of(name)])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **read}
    if CASES[name].config.startswith(("Glm", "Paddle", "Qwen2V", "Qwen2_5_", "Qwen3", "Gemma4")):
        inputs["mm_token_type_ids"] = (ids == IMAGE).int()
    with torch.no_grad():
        features = model.get_image_features(**read)
        parts = [features.pooler_output, *getattr(features, "deepstack_features", ())]
        rows = torch.cat([torch.cat([*part]) for part in parts], dim=1)
        return with_answer(model, inputs, rows)


if __name__ == "__main__":
    record(FILE, GRID_NAMES, computed, sys.argv[1:])
