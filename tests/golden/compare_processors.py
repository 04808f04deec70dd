"""Compare pixels with transformers' processors, on 200 generated files of every mode.

pip install -e ".[families]" torchvision
python -m tests.golden.compare_processors

Prints the largest difference for each mode, of 255, and ends with an error above 1. Transparent
images are compared with Idefics3's processor alone: those of Qwen and Gemma 4 drop transparency,
and Hearth and Idefics3 make it white. Files of 16 bits are not compared: transformers clips them.
"""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import (
    Idefics3ImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from hearthd.runtime.media.pixels import patches_of
from hearthd.server.images.decoding import decoded
from hearthd.server.images.grids import grids
from hearthd.server.images.squares import squares
from tests.baker.small_qwen35 import MAX_PIXELS, MERGED, MIN_PIXELS, PATCH
from tests.server.images.test_grids import FILLED_ROWS
from tests.server.images.test_grids import SETTINGS as GRID
from tests.server.images.test_squares import EDGE, SIDE
from tests.server.images.test_squares import SETTINGS as SQUARES

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Modes of Pillow, and formats of files that have them.
_FILES = (
    ("1", "PNG"), ("L", "PNG"), ("L", "JPEG"), ("P", "PNG"), ("P", "GIF"), ("RGB", "PNG"),
    ("RGB", "JPEG"), ("RGB", "WEBP"), ("CMYK", "JPEG"), ("LA", "PNG"), ("RGBA", "PNG"),
    ("RGBA", "WEBP"),
)  # fmt: skip
_COUNT = 200
_TURNED = 0x0112  # EXIF's tag of the orientation
_RAW = {"do_normalize": False, "do_rescale": False}


def generated(number: int) -> tuple[str, bytes]:
    """The mode and the bytes of a file: noise over a gradient, of a random size."""
    rng = np.random.default_rng(number)
    mode, format_ = _FILES[number % len(_FILES)]
    width, height = rng.integers(3, 160, 2).tolist()
    gradient = np.add.outer(np.arange(height), np.arange(width))[..., None] * rng.uniform(0, 3, 4)
    values = (gradient + rng.integers(0, 64, (height, width, 4))) % 256
    image = Image.fromarray(values.astype(np.uint8), "RGBA")
    image = image.convert("RGB").convert(mode) if mode in ("P", "CMYK") else image.convert(mode)
    exif = Image.Exif()
    if format_ != "GIF":
        exif[_TURNED] = int(rng.integers(1, 9))
    file = io.BytesIO()
    image.save(file, format_, exif=exif)
    return mode, file.getvalue()


def pairs(mode: str, data: bytes) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Hearth's and transformers' pixels of each processor."""
    ours, theirs = decoded(data, "image"), ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    idefics = Idefics3ImageProcessorPil(
        size={"longest_edge": EDGE}, max_image_size={"longest_edge": SIDE}, **_RAW
    )
    read = idefics(theirs, return_tensors="np")["pixel_values"][0]
    found: list[tuple[NDArray[Any], NDArray[Any]]]
    found = [(np.stack(squares(ours, SQUARES).pixels), np.moveaxis(read, 1, 3))]
    if "A" in mode:
        return found
    qwen = Qwen2VLImageProcessorPil(
        size={"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS}, patch_size=PATCH,
        merge_size=MERGED, temporal_patch_size=1, **_RAW,
    )  # fmt: skip
    (image,) = grids(ours, GRID, "image").pixels
    read = qwen(theirs, return_tensors="np")["pixel_values"]
    found.append((patches_of(image, GRID).values, read))
    filled = replace(GRID, min_pixels=1, max_pixels=FILLED_ROWS * GRID.step**2, fills=True)
    gemma = Gemma4ImageProcessorPil(
        patch_size=PATCH, pooling_kernel_size=MERGED, max_soft_tokens=FILLED_ROWS, do_rescale=False
    )
    (image,) = grids(ours, filled, "image").pixels
    read = gemma(theirs, return_tensors="np")["pixel_values"][0]
    patches = image.reshape(-1, PATCH, image.shape[1] // PATCH, PATCH, 3).transpose(0, 2, 1, 3, 4)
    patches = patches.reshape(-1, PATCH * PATCH * 3)
    found.append((patches, read[: len(patches)]))
    return found


def main() -> None:
    """Compare, and print."""
    largest: dict[str, float] = {}
    for number in range(_COUNT):
        mode, data = generated(number)
        for ours, theirs in pairs(mode, data):
            assert ours.shape == theirs.shape, (mode, ours.shape, theirs.shape)
            difference = float(np.abs(ours.astype(float) - theirs).max())
            largest[mode] = max(largest.get(mode, 0.0), difference)
    sys.stdout.write(f"{_COUNT} images: {largest}\n")
    if max(largest.values()) > 1.001:
        sys.exit("pixels differ by more than 1")


if __name__ == "__main__":
    main()
