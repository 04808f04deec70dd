"""Record the pixels that transformers' processor makes of images.

pip install -e ".[families]"
python -m tests.golden.record_image_squares
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import (
    Idefics3ImageProcessorPil,
)
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.llava_next.modeling_llava_next import LlavaNextModel

from tests.baker.small_smolvlm import pixels
from tests.server.images.test_padded_tiles import LAYOUTS, LINE
from tests.server.images.test_squares import EDGE, FILE, FITTED, MAX_TILES, SIDE, SIZES, name


def main() -> None:
    """Write the file."""
    processor = Idefics3ImageProcessorPil(
        size={"longest_edge": EDGE}, max_image_size={"longest_edge": SIDE}, do_normalize=False,
        do_rescale=False,
    )  # fmt: skip
    recorded = {}
    for size in SIZES:
        result = processor(pixels(*size), return_row_col_info=True, return_tensors="np")
        squares = np.moveaxis(result["pixel_values"][0], 1, 3).astype(np.uint8)
        recorded[name(size)] = squares
        recorded[f"{name(size)}.grid"] = np.array([result["rows"][0][0], result["cols"][0][0]])
    tiles = GotOcr2ImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, crop_to_patches=True, max_patches=MAX_TILES,
        do_normalize=False, do_rescale=False,
    )  # fmt: skip
    for size in SIZES:
        cut = tiles(Image.fromarray(pixels(*size)), return_tensors="np")["pixel_values"]
        recorded[f"tiles.{name(size)}"] = np.moveaxis(cut, 1, 3).astype(np.uint8)
    for fit in ("crop", "pad"):
        one = LlavaImageProcessorPil(
            size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE},
            do_pad=fit == "pad", image_mean=FITTED.mean, do_normalize=False, do_rescale=False,
        )  # fmt: skip
        for size in SIZES:
            (square,) = one(Image.fromarray(pixels(*size)), return_tensors="np")["pixel_values"]
            recorded[f"{fit}.{name(size)}"] = np.moveaxis(square, 0, 2).astype(np.uint8)
    np.savez_compressed(FILE, **recorded, **_padded())


def _padded() -> dict[str, Any]:
    """The tiles of each image, and the order of their rows: numbers of them all, -1 ends a line."""
    points = [[rows * SIDE, columns * SIDE] for columns, rows in LAYOUTS]
    processor = LlavaNextImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, crop_size={"height": SIDE, "width": SIDE},
        image_grid_pinpoints=points, do_normalize=False, do_rescale=False, do_pad=False,
    )  # fmt: skip
    vision = SimpleNamespace(image_size=SIDE, patch_size=SIDE // LINE)
    model = SimpleNamespace(
        config=SimpleNamespace(vision_config=vision, image_grid_pinpoints=points)
    )
    recorded = {}
    for size in SIZES:
        (squares,) = processor(Image.fromarray(pixels(*size)), return_tensors="np")["pixel_values"]
        recorded[f"padded.{name(size)}"] = np.moveaxis(squares, 1, 3).astype(np.uint8)
        numbers = torch.arange(len(squares) * LINE**2).reshape(len(squares), LINE**2, 1)
        (order,), _ = LlavaNextModel.pack_image_features(
            model, [numbers], torch.tensor([size[::-1]]), "default", torch.tensor([-1])
        )
        recorded[f"order.{name(size)}"] = order[:, 0].int().numpy()
    return recorded


if __name__ == "__main__":
    main()
