"""Record the patches that transformers' processor makes of images of many sizes.

pip install -e ".[families]"
python -m tests.golden.record_image_grids
"""

from __future__ import annotations

import numpy as np
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.baker.small_qwen35 import MAX_PIXELS, MERGED, MIN_PIXELS, PATCH
from tests.baker.small_smolvlm import pixels
from tests.server.images.test_grids import FILE, SIZES, name


def main() -> None:
    """Write the file."""
    processor = Qwen2VLImageProcessorPil(
        size={"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS}, patch_size=PATCH,
        merge_size=MERGED, temporal_patch_size=1, do_normalize=False, do_rescale=False,
    )  # fmt: skip
    recorded = {}
    for size in SIZES:
        result = processor(Image.fromarray(pixels(*size)), return_tensors="np")
        recorded[name(size)] = result["pixel_values"].astype(np.uint8)
        recorded[f"{name(size)}.grid"] = result["image_grid_thw"][0, 1:]
    np.savez_compressed(FILE, **recorded)


if __name__ == "__main__":
    main()
