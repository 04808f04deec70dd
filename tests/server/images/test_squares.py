"""Images are resized and cut as transformers does it: tests/golden/record_image_squares.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image

from hearthd.bundle import ImageInput, ImageTiles
from hearthd.server.images.squares import squares
from tests.baker.small_smolvlm import pixels

FILE = Path(__file__).parents[2] / "golden" / "image_squares.npz"
SIDE, EDGE = 12, 48
MAX_TILES = 6
SIZES = (
    (12, 12), (48, 48), (30, 20), (20, 30), (100, 37), (37, 100), (49, 48), (64, 15), (200, 7),
    (3, 90), (5, 9), (13, 11),
)  # fmt: skip
SETTINGS = ImageInput(
    side=SIDE, rows=4, longest_edge=EDGE, resampling="lanczos", mean=(0.5,) * 3, std=(0.5,) * 3,
    marker="<i>", placeholder="<r>", tile="<{row},{column}>", line_end="/", start="<w>", end="<e>",
)  # fmt: skip


def name(size: tuple[int, int]) -> str:
    return "x".join(map(str, size))


@pytest.mark.parametrize("size", SIZES, ids=name)
def test_squares_are_those_of_transformers(size: tuple[int, int]) -> None:
    with np.load(FILE) as recorded:
        expected, grid = recorded[name(size)], recorded[f"{name(size)}.grid"].tolist()
    cut = squares(Image.fromarray(pixels(*size)), SETTINGS)
    assert [cut.rows, cut.columns] == grid
    actual = np.stack(cut.pixels)
    assert actual.shape == expected.shape
    assert np.abs(actual.astype(int) - expected).max() <= 1


TILES = ImageTiles(
    side=SIDE, min_count=1, max_count=MAX_TILES, min_pixels=1, start="", thumbnail=""
)
TILED = replace(
    SETTINGS, longest_edge=None, tiles=TILES, resampling="bicubic", begin="<b>", tile="",
    line_end="", start="",
)  # fmt: skip


@pytest.mark.parametrize("size", SIZES, ids=name)
def test_tiles_are_those_of_transformers(size: tuple[int, int]) -> None:
    with np.load(FILE) as recorded:
        expected = recorded[f"tiles.{name(size)}"]
    cut = squares(Image.fromarray(pixels(*size)), TILED)
    actual = np.stack(cut.pixels)
    assert actual.shape == expected.shape
    assert np.abs(actual.astype(int) - expected).max() <= 1
    assert TILED.text(cut.rows, cut.columns) == f"<b>{'<r>' * len(actual)}<e>"


# As LLaVA 1.5 reads images, and as transformers crops them for it by default.
FITTED = replace(TILED, tiles=None, mean=(0.48, 0.46, 0.41))


@pytest.mark.parametrize("size", SIZES, ids=name)
@pytest.mark.parametrize("fit", ["crop", "pad"])
def test_squares_of_a_middle_or_with_padding_are_those_of_transformers(
    fit: Literal["crop", "pad"], size: tuple[int, int]
) -> None:
    with np.load(FILE) as recorded:
        expected = recorded[f"{fit}.{name(size)}"]
    cut = squares(Image.fromarray(pixels(*size)), replace(FITTED, fit=fit))
    (actual,) = cut.pixels
    assert actual.shape == expected.shape == (SIDE, SIDE, 3)
    assert np.abs(actual.astype(int) - expected).max() <= 1


def test_an_image_without_a_longest_edge_is_one_square() -> None:
    image = Image.fromarray(pixels(30, 20))
    whole = ImageInput(
        side=10, rows=1, longest_edge=None, resampling="bilinear", mean=(0.5,) * 3,
        std=(0.5,) * 3, marker="<i>", placeholder="<r>", start="(", end=")",
    )  # fmt: skip
    cut = squares(image, whole)
    expected = image.resize((10, 10), Image.Resampling.BILINEAR)
    assert np.array_equal(cut.pixels, [np.asarray(expected)])
    assert whole.text(cut.rows, cut.columns) == "(<r>)"


def test_the_text_of_an_image_has_its_squares_in_order() -> None:
    assert SETTINGS.text(2, 2) == "<1,1><r><1,2><r>/<2,1><r><2,2><r>//<w><r><e>"
    assert SETTINGS.text(0, 0) == "<w><r><e>"
