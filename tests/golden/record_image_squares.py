"""Record the pixels that transformers' processor makes of images.

pip install -e ".[families]"
python -m tests.golden.record_image_squares
"""

from __future__ import annotations

import numpy as np
from PIL import Image
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import (
    Idefics3ImageProcessorPil,
)
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

from tests.baker.small_smolvlm import pixels
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
    np.savez_compressed(FILE, **recorded)


if __name__ == "__main__":
    main()
