"""From an image to the sizes in which a tower for any size reads it, as transformers resizes it.

Source: transformers, `smart_resize` in models/qwen2_vl/image_processing_qwen2_vl.py,
models/glm4v/image_processing_glm4v.py and models/lfm2_vl/image_processing_lfm2_vl.py, and in the
last of these `_get_grid_layout`; `get_aspect_ratio_preserving_size` in
models/gemma4/image_processing_gemma4.py, and `get_resize_output_image_size` in
models/pixtral/image_processing_pixtral.py.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from hearthd.server.images.squares import Squares, array_of, cut, layout, resized
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from PIL import Image

    from hearthd.bundle import GridInput

_MAX_ASPECT = 200


def grids(image: Image.Image, settings: GridInput, field: str) -> Squares:
    """What the tower reads of an RGB image; raises InvalidRequest as `grid_size`."""
    thumbnail = resized(image, grid_size(*image.size, settings, field), settings.resampling)
    if settings.tiles is None or _nearest_area(*image.size, settings) <= settings.tiles.min_pixels:
        return Squares((array_of(thumbnail),))
    columns, rows = layout(*image.size, settings.tiles)
    side = settings.tiles.side
    return cut(resized(image, (columns * side, rows * side), settings.resampling), side, thumbnail)


def grid_size(width: int, height: int, settings: GridInput, field: str) -> tuple[int, int]:
    """The width and the height that an image is resized to: multiples of `settings.step`.

    The area is between the limits of the settings, and never above them. Raises InvalidRequest at
    `field` for an image that is too long for its width.
    """
    require_aspect(width, height, field)
    if settings.keeps_thin and min(width, height) < settings.step:
        scale = max(settings.step / height, settings.step / width)
        width, height = int(width * scale), int(height * scale)
    steps = _most_steps if settings.fills else _nearest_steps
    if settings.longest_edge is not None:
        steps = functools.partial(_covering_steps, edge=settings.longest_edge)
    columns, rows = steps(width, height, settings)
    # The limits may be so close together that rounding leaves none of the sizes between them.
    most = settings.max_pixels // settings.step**2
    if columns > rows:
        columns = min(columns, most // rows)
    else:
        rows = min(rows, most // columns)
    return columns * settings.step, rows * settings.step


def require_aspect(width: int, height: int, field: str) -> None:
    """Raise InvalidRequest at `field` for an image that is too long for its width."""
    if max(width, height) > _MAX_ASPECT * min(width, height):
        raise InvalidRequest(
            field=field,
            got=f"{width} x {height} pixels",
            expected=f"an image whose sides differ by a factor of at most {_MAX_ASPECT}",
        )


def _nearest_steps(width: int, height: int, settings: GridInput) -> tuple[int, int]:
    """The columns and rows of rows of embeddings nearest to an image's size, within limits."""
    step, smallest, largest = settings.step, settings.min_pixels, settings.max_pixels
    columns, rows = (round(x / step) for x in (width, height))
    area = rows * columns * step**2
    if area > largest:
        columns, rows = _shrunk_steps(width, height, settings)
    elif area < smallest:
        grow = math.sqrt(smallest / (height * width))
        columns, rows = (math.ceil(x * grow / step) for x in (width, height))
    return columns, rows


def _shrunk_steps(width: int, height: int, settings: GridInput) -> tuple[int, int]:
    """The columns and rows of the largest area, rounded down."""
    shrink = math.sqrt(height * width / settings.max_pixels)
    columns, rows = (max(1, math.floor(x / shrink / settings.step)) for x in (width, height))
    return columns, rows


def _covering_steps(width: int, height: int, settings: GridInput, *, edge: int) -> tuple[int, int]:
    """The columns and rows that cover an image whose longer side has at most `edge` pixels."""
    ratio = max(1, max(width, height) / edge)
    columns, rows = (
        math.ceil(max(1, math.floor(x / ratio)) / settings.step) for x in (width, height)
    )
    if columns * rows * settings.step**2 > settings.max_pixels:
        return _shrunk_steps(width, height, settings)
    return columns, rows


def _most_steps(width: int, height: int, settings: GridInput) -> tuple[int, int]:
    """The columns and rows of the largest size with an image's aspect ratio, rounded down."""
    factor = math.sqrt(settings.max_pixels / (height * width))
    columns, rows = (math.floor(factor * x / settings.step) for x in (width, height))
    if not rows:
        return width // height, 1
    return (columns, rows) if columns else (1, height // width)


def _nearest_area(width: int, height: int, settings: GridInput) -> int:
    """The area of an image whose sides are rounded to `settings.step`, or to a patch at least."""
    step = settings.step
    return math.prod(max(settings.patch, round(x / step) * step) for x in (width, height))
