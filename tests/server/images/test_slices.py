"""Images are cut into slices as image_processing_minicpmv.py of MiniCPM-V 2.6 cuts them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from hearthd.bundle import GridInput, ImageSlices
from hearthd.runtime.interface import NO_TOKEN
from hearthd.server.images.media_reader import MediaReader
from hearthd.server.images.read_media import ReadMedia, numbered_texts
from hearthd.server.images.slices import part_size, slice_layout, sliced
from hearthd.text.conversation import Media
from hearthd.text.errors import InvalidRequest
from hearthd.text.tokenizer import Tokenizer
from tests.baker.small_smolvlm import pixels, tokenizer

SPECIAL = ("<s>", "</s>", "<unk>", "<image>", "</image>", "<slice>", "</slice>")
SLICES = ImageSlices(
    side=448, rows=64, max_count=9, begin="[{image}]", start="<slice>", end="</slice>",
    line_end="\n",
)  # fmt: skip
SETTINGS = GridInput(
    patch=14, merged=1, min_pixels=1, max_pixels=32 * 35 * 14**2, resampling="bicubic",
    mean=(0.5,) * 3, std=(0.5,) * 3, marker="(<image>./</image>)", start="<image>",
    placeholder="<unk>", end="</image>", axes=1, slices=SLICES, own_line=True,
)  # fmt: skip
# By the size of an image, as the original computes them: columns and rows of slices, and the sizes
# of the image as a whole and of a slice.
CUT = {
    (449, 449): ((1, 2), (448, 448), (630, 322)),
    (900, 500): ((2, 1), (602, 336), (420, 476)),
    (1920, 1080): ((4, 2), (602, 336), (420, 476)),
    (300, 2000): ((1, 4), (168, 1162), (350, 574)),
    (3000, 2000): ((4, 2), (546, 364), (392, 518)),
}


def read(*size: int) -> ReadMedia:
    file = io.BytesIO()
    Image.fromarray(pixels(*size)).save(file, "PNG")
    reader = MediaReader(SETTINGS, None, Tokenizer(tokenizer(SPECIAL), bos=None))
    return reader.read(Media(kind="image", field="image", url="", data=file.getvalue()))


@pytest.mark.parametrize("size", CUT)
def test_large_images_are_cut_as_in_the_original(size: tuple[int, int]) -> None:
    layout, whole, part = CUT[size]
    assert slice_layout(*size, SLICES) == layout
    assert part_size(*size, SETTINGS) == whole
    image = Image.new("RGB", size)
    cut = sliced(image, SETTINGS, "")
    assert (cut.columns, cut.rows) == layout
    sizes = [(array.shape[1], array.shape[0]) for array in cut.pixels]
    assert sizes == [whole, *[part] * (layout[0] * layout[1])]


def test_slices_follow_each_other_by_rows() -> None:
    image = Image.fromarray(pixels(900, 900))
    cut = sliced(image, SETTINGS, "")
    width, height = (
        count * extent
        for count, extent in zip(
            (cut.columns, cut.rows), reversed(cut.pixels[1].shape[:2]), strict=True
        )
    )
    enlarged = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))
    rows = [
        np.concatenate(cut.pixels[1 + row * cut.columns : 1 + (row + 1) * cut.columns], axis=1)
        for row in range(cut.rows)
    ]
    assert np.array_equal(np.concatenate(rows), enlarged)


def test_small_images_are_enlarged_and_not_cut() -> None:
    image = read(100, 60)
    (square,) = image.squares
    assert square.media.shape == (350, 574, 3)
    assert square.rows == 64
    assert image.text == "[{image}]<image><unk></image>"


def test_each_part_has_the_same_rows() -> None:
    image = read(900, 500)
    assert [square.rows for square in image.squares] == [64] * 3
    slices = "<slice><unk></slice>" * 2
    assert image.text == f"[{{image}}]<image><unk></image>{slices}"
    reader = MediaReader(SETTINGS, None, Tokenizer(tokenizer(SPECIAL), bos=None))
    ids = [256 + SPECIAL.index("<unk>")] * 3
    assert reader.positions(ids, image.squares) == (NO_TOKEN,) * 192


def test_rows_of_slices_are_lines() -> None:
    assert read(400, 1000).text.count("<slice><unk></slice>\n<slice>") == 1


def test_images_are_numbered_in_the_prompt() -> None:
    image, sound = read(10, 10), ReadMedia("audio", (), "{image}")
    texts = numbered_texts([image, sound, image])
    assert texts == ("[0]<image><unk></image>", "{image}", "[1]<image><unk></image>")


def test_parts_of_thin_images_have_no_more_patches_than_the_largest() -> None:
    width, height = part_size(20_000, 100, SETTINGS)
    assert width * height <= SETTINGS.max_pixels
    assert height == 28


def test_images_too_long_for_their_width_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="factor of at most 200"):
        sliced(Image.new("RGB", (2010, 10)), SETTINGS, "image")
