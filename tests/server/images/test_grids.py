"""Images of any size have the pixels of transformers: tests/golden/record_image_grids.py."""

from __future__ import annotations

import functools
import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from hearthd.bundle import GridInput, ImageTiles
from hearthd.runtime.interface import NO_TOKEN
from hearthd.runtime.media.pixels import patches_of
from hearthd.server.completions.completer import _with_images
from hearthd.server.images.grids import grid_size, grids
from hearthd.server.images.media_reader import MediaReader
from hearthd.text.conversation import Media
from hearthd.text.errors import InvalidRequest
from hearthd.text.text_request import ImageSquare
from hearthd.text.tokenizer import Tokenizer
from tests.baker import small_lfm2vl, small_mistral3
from tests.baker.small_qwen35 import MAX_PIXELS, MERGED, MIN_PIXELS, PATCH, SPECIAL, token
from tests.baker.small_smolvlm import pixels, tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILE = Path(__file__).parents[2] / "golden" / "image_grids.npz"
SIZES = (
    (100, 60), (60, 100), (40, 24), (8, 8), (9, 9), (3, 90), (200, 7), (20, 50), (64, 60),
    (61, 62), (500, 3), (13, 180), (1, 1), (24, 16), (333, 222),
)  # fmt: skip
# Without those for which transformers' processor of LFM2-VL exceeds its largest size.
CUT_SIZES = (
    *(size for size in SIZES if size not in ((200, 7), (500, 3))), (120, 30), (70, 200), (46, 47),
)  # fmt: skip
# Gemma 4's: the largest number of rows. Its processor allows only a few such numbers.
FILLED_ROWS, FILLED_SIZES = 70, ((100, 60), (3, 90), (61, 62), (200, 7))
# Pixtral's processor fails for those whose shorter side is less than a pixel then.
COVERED_SIZES = tuple(size for size in SIZES if max(size) < 60 * min(size))
# Without normalization.
SETTINGS = GridInput(
    patch=PATCH, merged=MERGED, min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS, resampling="bicubic",
    mean=(0.0,) * 3, std=(1 / 255,) * 3, marker="<|vision_start|><|image_pad|><|vision_end|>",
    start="<|vision_start|>", placeholder="<|image_pad|>", end="<|vision_end|>", axes=3,
)  # fmt: skip

STEP = PATCH * MERGED  # also LFM2-VL's here


def name(size: tuple[int, int]) -> str:
    return "x".join(map(str, size))


def media(image: Image.Image) -> Media:
    file = io.BytesIO()
    image.save(file, "PNG")
    return Media(kind="image", field="image", url="", data=file.getvalue())


@pytest.fixture(scope="module")
def reader() -> MediaReader:
    return MediaReader(SETTINGS, None, Tokenizer(tokenizer(SPECIAL), bos=None))


@pytest.mark.parametrize("size", SIZES, ids=name)
def test_patches_are_those_of_transformers(size: tuple[int, int], reader: MediaReader) -> None:
    with np.load(FILE) as recorded:
        expected: NDArray[np.uint8] = recorded[name(size)]
        grid = recorded[f"{name(size)}.grid"].tolist()
    image = reader.read(media(Image.fromarray(pixels(*size))))
    (square,) = image.squares
    patches = patches_of(square.media, SETTINGS)
    assert patches.grid.tolist() == grid
    assert square.grid == tuple(extent // MERGED for extent in grid)
    assert square.rows * MERGED**2 == len(patches.values) == len(expected)
    assert np.abs(patches.values - expected).max() <= 1 + 1e-4
    assert image.text == "<|vision_start|><|image_pad|><|vision_end|>"


TILES = ImageTiles(
    side=small_lfm2vl.TILE, min_count=2, max_count=small_lfm2vl.MAX_TILES,
    min_pixels=2 * small_lfm2vl.MAX_ROWS * STEP**2, start="<|img_row_{row}_col_{column}|>",
    thumbnail="<|img_thumbnail|>",
)  # fmt: skip
CUT = replace(
    SETTINGS, min_pixels=small_lfm2vl.MIN_ROWS * STEP**2,
    max_pixels=small_lfm2vl.MAX_ROWS * STEP**2, resampling="bilinear", marker="<image>",
    start="<|image_start|>", placeholder="<image>", end="<|image_end|>", axes=1, tiles=TILES,
)  # fmt: skip


def in_file_order(values: NDArray[np.float32], places: NDArray[np.int32]) -> NDArray[np.float32]:
    """Patches row after row, with the channels of a pixel side by side."""
    values = values[np.lexsort((places[1], places[0]))]
    return values.reshape(len(values), 3, -1).swapaxes(1, 2).reshape(len(values), -1)


@pytest.mark.parametrize("size", CUT_SIZES, ids=name)
def test_large_images_are_cut_as_transformers_cuts_them(size: tuple[int, int]) -> None:
    with np.load(FILE) as recorded:
        expected: NDArray[np.uint8] = recorded[f"lfm2.{name(size)}"]
        shapes = recorded[f"lfm2.{name(size)}.grid"].tolist()
        rows, columns = recorded[f"lfm2.{name(size)}.cut"].tolist()
    image = tile_reader().read(media(Image.fromarray(pixels(*size))))
    patches = [patches_of(square.media, CUT) for square in image.squares]
    assert [part.grid.tolist() for part in patches] == shapes
    actual = np.concatenate([in_file_order(part.values, part.places) for part in patches])
    assert np.abs(actual - expected).max() <= 1 + 1e-4
    tiles = [
        f"<|img_row_{row + 1}_col_{column + 1}|><image>"
        for row in range(rows)
        for column in range(columns)
    ]
    before = "".join(tiles) + "<|img_thumbnail|>" if len(tiles) > 1 else ""
    assert image.text == f"<|image_start|>{before}<image><|image_end|>"
    assert all(square.grid is None for square in image.squares)


FILLED = replace(SETTINGS, min_pixels=STEP**2, max_pixels=FILLED_ROWS * STEP**2, fills=True, axes=1)


@pytest.mark.parametrize("size", FILLED_SIZES, ids=name)
def test_images_fill_the_largest_area_as_transformers_fills_it(size: tuple[int, int]) -> None:
    with np.load(FILE) as recorded:
        expected: NDArray[np.uint8] = recorded[f"gemma4.{name(size)}"]
        grid = recorded[f"gemma4.{name(size)}.grid"].tolist()
    reader = MediaReader(FILLED, None, Tokenizer(tokenizer(SPECIAL), bos=None))
    image = reader.read(media(Image.fromarray(pixels(*size))))
    patches = patches_of(image.squares[0].media, FILLED)
    assert patches.grid.tolist() == grid
    actual = in_file_order(patches.values, patches.places)
    assert np.abs(actual - expected).max() <= 1 + 1e-4


EDGES = replace(
    SETTINGS, min_pixels=1, max_pixels=64**2, longest_edge=small_mistral3.EDGE, marker="[IMG]",
    start="", placeholder="[IMG]", line_end="[IMG_BREAK]", end="[IMG_END]", axes=1,
)  # fmt: skip


@pytest.mark.parametrize("size", COVERED_SIZES, ids=name)
def test_images_with_a_longest_edge_have_the_pixels_of_transformers(size: tuple[int, int]) -> None:
    with np.load(FILE) as recorded:
        expected: NDArray[np.uint8] = recorded[f"pixtral.{name(size)}"]
    reader = MediaReader(EDGES, None, Tokenizer(tokenizer(small_mistral3.SPECIAL), bos=None))
    image = reader.read(media(Image.fromarray(pixels(*size))))
    (square,) = image.squares
    assert square.media.shape == expected.shape
    assert np.abs(square.media.astype(int) - expected).max() <= 1
    rows, columns = (extent // STEP for extent in expected.shape[:2])
    assert (square.rows, square.lines) == (rows * columns, rows)
    assert image.text == "[IMG_BREAK]".join(["[IMG]"] * rows) + "[IMG_END]"
    ids = reader.positions([258, 259] * (rows - 1) + [258, 260, 258], [square])
    assert ids == (*([NO_TOKEN] * columns + [259]) * (rows - 1), *[NO_TOKEN] * columns, 260, -1)


def test_the_lines_of_an_image_are_segments_of_its_rows() -> None:
    pixels_ = np.zeros((16, 24, 3), np.uint8)
    square = ImageSquare(media=pixels_, digest=b"x" * 32, rows=6, lines=2)
    prompt = _with_images((5, *[NO_TOKEN] * 3, 259, *[NO_TOKEN] * 3, 260), [square])
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    assert [len(segment) for segment in prompt.segments] == [1, 3, 1, 3, 1]
    read = prompt.rows({square.digest: rows})
    assert read is not None
    assert np.array_equal(read, rows)
    assert prompt.rotary_positions is None
    assert len({image.identity for image in prompt.images}) == 2


def test_a_limit_of_rows_holds_for_images_with_a_longest_edge() -> None:
    limited = EDGES.limited(20)
    assert grid_size(60, 60, EDGES, "") == (64, 64)
    assert grid_size(60, 60, limited, "") == (32, 32)
    assert grid_size(30, 20, limited, "") == (32, 24)


def test_thin_images_keep_their_shape_with_glm() -> None:
    """As `smart_resize` of models/glm4v in transformers, for the published settings."""
    glm = replace(SETTINGS, patch=14, merged=2, min_pixels=6272, max_pixels=5_880_000)
    sizes = {(1, 1): (84, 84), (300, 10): (840, 28), (2, 300): (28, 4200), (27, 5400): (28, 5600)}
    thin = replace(glm, keeps_thin=True)
    assert {size: grid_size(*size, thin, "") for size in sizes} == sizes
    assert grid_size(300, 10, glm, "") == (448, 28)


@functools.cache
def tile_reader() -> MediaReader:
    return MediaReader(CUT, None, Tokenizer(tokenizer(small_lfm2vl.SPECIAL), bos=None))


@pytest.mark.parametrize(
    ("size", "layout"),
    [((66, 66), (2, 2)), ((70, 70), (3, 3)), ((72, 36), (2, 1)), ((130, 65), (4, 2))],
)
def test_of_equal_aspect_ratios_small_images_take_fewer_tiles(
    size: tuple[int, int], layout: tuple[int, int]
) -> None:
    """What `_get_grid_layout` of transformers' processor returns for tiles of 32 pixels."""
    settings = replace(CUT, tiles=replace(TILES, max_count=10))
    cut = grids(Image.fromarray(pixels(*size)), settings, "image")
    assert (cut.columns, cut.rows) == layout


def test_the_tokenizer_must_have_the_tokens_of_all_tiles() -> None:
    assert set(CUT.special_tokens) < set(small_lfm2vl.SPECIAL)
    assert "<|img_row_4_col_1|>" in CUT.special_tokens
    assert "<|img_row_2_col_3|>" not in CUT.special_tokens  # of five tiles at least


def test_images_are_not_cut_into_tiles_with_too_many_rows() -> None:
    rows = (TILES.side // STEP) ** 2
    assert CUT.limited(rows).tiles == TILES
    limited = CUT.limited(rows - 1)
    assert (limited.tiles, limited.max_rows) == (None, rows - 1)


def test_places_are_in_the_order_of_patches() -> None:
    """A patch has the pixels of its place."""
    row, column = np.indices((16, 24), np.uint8) // PATCH
    image = np.stack([row, column, row], axis=2)
    patches = patches_of(image, SETTINGS)
    inside = patches.values.reshape(len(patches.values), 3, -1)
    assert np.allclose(inside[:, 0], patches.places[0][:, None], atol=1e-4)
    assert np.allclose(inside[:, 1], patches.places[1][:, None], atol=1e-4)


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 400))
@example(300, 200, 0)
def test_an_image_never_has_more_rows_than_the_largest(width: int, height: int, more: int) -> None:
    """Also if the limits are so close together that no size is between them."""
    settings = replace(SETTINGS, max_pixels=MIN_PIXELS + more)
    if max(width, height) > 200 * min(width, height):
        with pytest.raises(InvalidRequest, match="differ by a factor of at most 200"):
            grid_size(width, height, settings, "image")
        return
    size = grid_size(width, height, settings, "image")
    assert all(extent >= settings.step and extent % settings.step == 0 for extent in size)
    assert size[0] * size[1] <= settings.max_pixels


def test_images_of_equal_bytes_and_other_shapes_differ(reader: MediaReader) -> None:
    """Their rows and their rotary positions do."""
    first, second = (
        reader.read(media(Image.new("RGB", size, (9, 9, 9)))).squares[0]
        for size in ((64, 32), (32, 64))
    )
    assert first.media.tobytes() == second.media.tobytes()
    assert first.digest != second.digest


def test_each_placeholder_has_the_rows_of_its_image(reader: MediaReader) -> None:
    squares = [
        image.squares[0]
        for size in SIZES[:2]
        for image in [reader.read(media(Image.fromarray(pixels(*size))))]
    ]
    pad = token("<|image_pad|>")
    ids = reader.positions([pad, 5, pad, pad], squares)
    rows = [square.rows for square in squares]
    assert ids == (*[NO_TOKEN] * rows[0], 5, *[NO_TOKEN] * rows[1], NO_TOKEN)
