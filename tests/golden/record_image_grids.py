"""Record the patches that transformers' processors make of images of many sizes.

pip install -e ".[families]" torchvision
python -m tests.golden.record_image_grids
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from transformers import Lfm2VlImageProcessor
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.baker import small_lfm2vl, small_mistral3
from tests.baker.small_qwen35 import MAX_PIXELS, MERGED, MIN_PIXELS, PATCH
from tests.baker.small_smolvlm import pixels
from tests.server.images.test_grids import (
    COVERED_SIZES,
    CUT_SIZES,
    FILE,
    FILLED_ROWS,
    FILLED_SIZES,
    SIZES,
    name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_RAW = {"do_normalize": False, "do_rescale": False}


def qwen() -> Iterator[tuple[str, NDArray[Any]]]:
    """Qwen3.5's patches, and the rows and columns of each image."""
    processor = Qwen2VLImageProcessorPil(
        size={"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS}, patch_size=PATCH,
        merge_size=MERGED, temporal_patch_size=1, **_RAW,
    )  # fmt: skip
    for size in SIZES:
        result = processor(Image.fromarray(pixels(*size)), return_tensors="np")
        yield name(size), result["pixel_values"].astype(np.uint8)
        yield f"{name(size)}.grid", result["image_grid_thw"][0, 1:]


def lfm2() -> Iterator[tuple[str, NDArray[Any]]]:
    """LFM2-VL's images and tiles, as the patches of all of them, and the shape of each."""
    settings = {key: small_lfm2vl.PROCESSOR[key] for key in small_lfm2vl.SIZES} | _RAW
    processor = Lfm2VlImageProcessor(**settings)
    for size in CUT_SIZES:
        image = Image.fromarray(pixels(*size))
        result = processor(image, return_row_col_info=True, return_tensors="np")
        shapes = result["spatial_shapes"]
        patches = [
            values[: rows * columns]
            for values, (rows, columns) in zip(result["pixel_values"], shapes, strict=True)
        ]
        yield f"lfm2.{name(size)}", np.concatenate(patches).astype(np.uint8)
        yield f"lfm2.{name(size)}.grid", shapes
        cut = [result["image_rows"][0], result["image_cols"][0]]
        yield f"lfm2.{name(size)}.cut", np.array(cut)


def gemma4() -> Iterator[tuple[str, NDArray[Any]]]:
    """Gemma 4's patches, and the rows and columns of each image."""
    processor = Gemma4ImageProcessorPil(
        patch_size=PATCH, pooling_kernel_size=MERGED, max_soft_tokens=FILLED_ROWS, do_rescale=False
    )
    for size in FILLED_SIZES:
        result = processor(Image.fromarray(pixels(*size)), return_tensors="np")
        places = result["image_position_ids"][0]
        count = int((places >= 0).all(axis=1).sum())
        yield f"gemma4.{name(size)}", result["pixel_values"][0][:count].astype(np.uint8)
        yield f"gemma4.{name(size)}.grid", places[:count].max(axis=0)[::-1] + 1


def pixtral() -> Iterator[tuple[str, NDArray[Any]]]:
    """Pixtral's pixels of each image."""
    step = small_mistral3.PATCH * small_mistral3.MERGED
    processor = PixtralImageProcessorPil(
        patch_size={"height": step, "width": step},
        size={"longest_edge": small_mistral3.EDGE},
        **_RAW,
    )
    for size in COVERED_SIZES:
        result = processor(Image.fromarray(pixels(*size)), return_tensors="np")
        yield f"pixtral.{name(size)}", result["pixel_values"][0].transpose(1, 2, 0).astype(np.uint8)


def main() -> None:
    """Write the file."""
    arrays: dict[str, Any] = {**dict(qwen()), **dict(lfm2()), **dict(gemma4()), **dict(pixtral())}
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
