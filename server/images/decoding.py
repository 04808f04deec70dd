"""From the bytes of an image file to its pixels, with Pillow.

The result is what transformers' `load_image` and `convert_to_rgb` give: turned as EXIF says, the
first frame, transparent parts on white. Pixels of 16 bits are scaled to 8, where those cut them.
"""

from __future__ import annotations

import io
import threading
import warnings
from typing import TYPE_CHECKING

from PIL import Image, ImageOps, UnidentifiedImageError

from hearthd.bundle import MAX_PIXELS
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from hearthd.text.errors import Scalar

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
_WIDE_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_SCALE = 1 / 257  # from 65535 to 255
# Pillow warns of metadata. `catch_warnings` would change the filters of other threads.
warnings.filterwarnings("ignore", module=r"PIL\.")
# One image is decoded at a time: bundle/memory_sum.py counts the memory of one.
_LOCK = threading.Lock()


def decoded(data: bytes, field: str) -> Image.Image:
    """The first frame of an image file, as RGB of 8 bits.

    Raises InvalidRequest at `field` for another format, more than MAX_PIXELS, or a file that is not
    complete. Memory for pixels is allocated after their number was checked.
    """
    with _LOCK:
        try:
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                width, height = image.size
                if width * height > MAX_PIXELS:
                    raise _invalid(field, f"{width} x {height} pixels", _FEWER)
                return _rgb(image)
        except UnidentifiedImageError:
            raise _invalid(field, f"{len(data)} bytes", _FORMAT) from None
        except Image.DecompressionBombError as error:
            raise _invalid(field, str(error), _FEWER) from None
        except (OSError, SyntaxError, ValueError, EOFError, IndexError, OverflowError) as error:
            raise _invalid(field, str(error)[:80], _COMPLETE) from None


_FEWER = f"an image of at most {MAX_PIXELS} pixels: make it smaller"
_FORMAT = "an image in the format JPEG, PNG, WebP or GIF"
_COMPLETE = "a complete image file"


def _invalid(field: str, got: Scalar, expected: str) -> InvalidRequest:
    return InvalidRequest(field=field, got=got, expected=expected)


def _rgb(image: Image.Image) -> Image.Image:
    """The pixels of an opened image, turned upright."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode in _WIDE_MODES:
        upright = upright.convert("I").point(lambda value: value * _SCALE).convert("L")
    if "A" not in upright.getbands() and "transparency" not in upright.info:
        return upright.convert("RGB")
    upright = upright.convert("RGBA")
    background = Image.new("RGBA", upright.size, (255, 255, 255, 255))
    return Image.alpha_composite(background, upright).convert("RGB")
