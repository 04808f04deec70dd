"""Images are cut for LLaVA 1.6 as transformers cuts them: tests/golden/record_image_squares.py."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from hearthd.bundle import NotABundle, PaddedTiles
from hearthd.server.images.media_reader import MediaReader
from hearthd.server.images.padded_tiles import padded_tiles, runs
from hearthd.text.conversation import Media
from hearthd.text.errors import InvalidRequest
from hearthd.text.tokenizer import Tokenizer
from tests.baker.small_smolvlm import pixels, tokenizer
from tests.server.images.test_squares import FILE, FITTED, SIZES, name

LAYOUTS = ((2, 1), (1, 2), (2, 2), (1, 3), (3, 1))
LINE = 3  # rows of embeddings in a line of a square
SETTINGS = replace(
    FITTED, rows=LINE**2 + 1, padded=PaddedTiles(layouts=LAYOUTS), begin="", end="",
    marker="<image>", placeholder="<image>",
)  # fmt: skip


@pytest.mark.parametrize("size", SIZES, ids=name)
def test_tiles_and_the_order_of_their_rows_are_those_of_transformers(
    size: tuple[int, int],
) -> None:
    with np.load(FILE) as recorded:
        expected, order = recorded[f"padded.{name(size)}"], recorded[f"order.{name(size)}"]
    cut = padded_tiles(Image.fromarray(pixels(*size)), SETTINGS, "")
    actual = np.stack(cut.pixels)
    assert actual.shape == expected.shape
    assert np.abs(actual.astype(int) - expected).max() <= 1
    rows = np.arange(len(actual) * LINE**2).reshape(len(actual), -1)
    rows = np.pad(rows, ((0, 0), (0, 1)), constant_values=-1)
    found = [rows[square, start:end] for square, start, end in runs(*size, cut, SETTINGS)]
    assert np.concatenate(found).tolist() == order.tolist()


def test_each_run_of_rows_has_a_place_in_the_prompt() -> None:
    file = io.BytesIO()
    Image.fromarray(pixels(30, 20)).save(file, "PNG")
    special = ("<s>", "</s>", "<image>")
    reader = MediaReader(SETTINGS, None, Tokenizer(tokenizer(special), bos=None))
    image = reader.read(Media(kind="image", field="image", url="", data=file.getvalue()))
    assert image.text == "<image>" * len(image.squares)
    # The first line of the tiles is padding.
    assert [(square.offset, square.rows) for square in image.squares[:4]] == [
        (0, 9), (3, 3), (3, 3), (9, 1),
    ]  # fmt: skip
    first, left, right, end = image.squares[:4]
    assert len({first.digest, left.digest, right.digest}) == 3
    assert end.digest == first.digest
    ids = [258] * len(image.squares)
    assert len(reader.positions(ids, image.squares)) == sum(x.rows for x in image.squares)


def test_images_too_long_for_their_width_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="factor of at most 200"):
        padded_tiles(Image.new("RGB", (2010, 10)), SETTINGS, "image")


def test_settings_that_cut_nothing_are_refused() -> None:
    with pytest.raises(NotABundle, match=r"padded\.layouts: got none"):
        PaddedTiles(layouts=())
    with pytest.raises(NotABundle, match=r"padded\.layouts\.rows: got 9, expected 1 to 8"):
        PaddedTiles(layouts=((1, 1), (8, 9)))
    with pytest.raises(NotABundle, match=r"images\.rows: got 9, expected a square number and 1"):
        replace(SETTINGS, rows=9)
