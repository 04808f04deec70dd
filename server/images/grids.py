"""From an image to the size in which a tower reads it, as transformers' processor of Qwen2-VL does.

Source: `smart_resize` in transformers, models/qwen2_vl/image_processing_qwen2_vl.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from hearthd.bundle import GridInput

_MAX_ASPECT = 200


def grid_size(width: int, height: int, settings: GridInput, field: str) -> tuple[int, int]:
    """The width and the height that an image is resized to: multiples of `settings.step`.

    The area is between the limits of the settings, and never above them. Raises InvalidRequest at
    `field` for an image that is too long for its width.
    """
    longer, shorter = max(width, height), min(width, height)
    if longer > _MAX_ASPECT * shorter:
        raise InvalidRequest(
            field=field,
            got=f"{width} x {height} pixels",
            expected=f"an image whose sides differ by a factor of at most {_MAX_ASPECT}",
        )
    step, smallest, largest = settings.step, settings.min_pixels, settings.max_pixels
    columns, rows = round(width / step), round(height / step)
    area = rows * columns * step**2
    if area > largest:
        shrink = math.sqrt(height * width / largest)
        columns, rows = (max(1, math.floor(x / shrink / step)) for x in (width, height))
    elif area < smallest:
        grow = math.sqrt(smallest / (height * width))
        columns, rows = (math.ceil(x * grow / step) for x in (width, height))
    # The limits may be so close together that rounding leaves none of the sizes between them.
    most = largest // step**2
    if columns > rows:
        columns = min(columns, most // rows)
    else:
        rows = min(rows, most // columns)
    return columns * step, rows * step
