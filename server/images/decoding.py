"""From the bytes of an image file to its pixels, with Pillow.

The result is what transformers' `load_image` and `convert_to_rgb` give: turned as EXIF says, the
first frame, transparent parts on white. Pixels of 16 bits are scaled to 8, where those cut them.

A file of few bytes can have millions of parts that Pillow reads one after the other: their number
and the time are limited.
"""

from __future__ import annotations

import io
import itertools
import time
import warnings
from typing import TYPE_CHECKING

from PIL import ExifTags, Image, PngImagePlugin, UnidentifiedImageError
from typing_extensions import override

from hearthd.bundle import MAX_PIXELS
from hearthd.server.images.webp import is_webp, open_webp
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hearthd.text.errors import Scalar

_FORMATS = ("JPEG", "PNG", "GIF")  # and WebP
_WIDE_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_SCALE = 1 / 257  # from 65535 to 255
# Pillow keeps four copies of a WebP's pixels: two are libwebp's canvases.
_MAX_WEBP_PIXELS = MAX_PIXELS // 2
_MAX_SIDE = 2**16 - 1  # as in JPEG: to resize a longer row takes hundreds of MB
_MAX_READS = 2**14  # of chunks, markers and parts of them: 11,000 for 7 MB of PNG chunks of 2 KB
_MAX_SECONDS = 10  # of a core
# Of PNG, whose standard allows one: each takes 6 ms to inflate.
_PROFILE, _MAX_PROFILES = b"iCCP", 64
# Of a progressive JPEG, each over all pixels: encoders write about ten. Other bytes may look like
# the start of a scan, such as a video after the image: a hundred in 7 MB.
_START_OF_SCAN, _MAX_SCANS = b"\xff\xda", 256
_STRIP = 2**20  # pixels that are converted at a time: the copies are small, and other threads run
_TURNS: Mapping[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Pillow warns of metadata. `catch_warnings` would change the filters of other threads.
warnings.filterwarnings("ignore", module=r"PIL\.")
# Characters of all texts in a PNG file, which Pillow keeps in up to four bytes each.
PngImagePlugin.MAX_TEXT_MEMORY = 2**22


class _TooManyParts(Exception):
    """An image file takes too long to read."""


class _ImageFile(io.BytesIO):
    """An image file; `read` raises _TooManyParts after _MAX_READS or _MAX_SECONDS."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._reads = 0
        self._deadline = time.thread_time() + _MAX_SECONDS

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        self._reads += 1
        if self._reads > _MAX_READS or time.thread_time() > self._deadline:
            raise _TooManyParts
        return super().read(size)


def decoded(data: bytes, field: str) -> Image.Image:
    """The first frame of an image file, as RGB of 8 bits.

    Raises InvalidRequest at `field` for another format, more than MAX_PIXELS or half of them in
    WebP, too long a side, too many parts, or a file that is not complete, and
    DecoderNotStarted. Memory for pixels is allocated after their number was checked.
    """
    try:
        pixels, turn = (_webp if is_webp(data) else _opened)(data, field)
        return pixels if turn is None else pixels.transpose(turn)
    except UnidentifiedImageError:
        raise _invalid(field, f"{len(data)} bytes", _FORMAT) from None
    except Image.DecompressionBombError:  # of a limit of Pillow's, which its message states
        raise _invalid(field, "far more pixels", _FEWER) from None
    except _TooManyParts:
        raise _invalid(field, f"{len(data)} bytes in too many parts", _SIMPLE) from None
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, OverflowError) as error:
        raise _invalid(field, str(error)[:80], _COMPLETE) from None


_FEWER = (
    f"an image of at most {MAX_PIXELS} pixels, {_MAX_WEBP_PIXELS} in WebP, and {_MAX_SIDE} on a "
    "side: make it smaller"
)
_FORMAT = "an image in the format JPEG, PNG, WebP or GIF"
_COMPLETE = "a complete image file"
_SIMPLE = "an image file with fewer chunks, markers and scans: save it again"


def _invalid(field: str, got: Scalar, expected: str) -> InvalidRequest:
    return InvalidRequest(field=field, got=got, expected=expected)


def _webp(data: bytes, field: str) -> tuple[Image.Image, Image.Transpose | None]:
    """As `_opened`, for a WebP file."""
    with open_webp(data, _MAX_SECONDS) as file:
        _require_size(file.size, _MAX_WEBP_PIXELS, field)
        return _joined(file.size, file.strips()), _TURNS.get(file.orientation)


def _opened(data: bytes, field: str) -> tuple[Image.Image, Image.Transpose | None]:
    """The pixels, and how to turn them; raises as Pillow does, InvalidRequest or _TooManyParts."""
    if data.count(_PROFILE) > _MAX_PROFILES:
        raise _TooManyParts
    with Image.open(_ImageFile(data), formats=_FORMATS) as image:
        _require_size(image.size, MAX_PIXELS, field)
        # MPO is a JPEG with further images.
        if image.format in ("JPEG", "MPO") and data.count(_START_OF_SCAN) > _MAX_SCANS:
            raise _TooManyParts
        image.load()
        return _rgb(image), _TURNS.get(_orientation(image))


def _require_size(size: tuple[int, int], limit: int, field: str) -> None:
    """Raise InvalidRequest for more than `limit` pixels, or too long a side."""
    if size[0] * size[1] > limit or max(size) > _MAX_SIDE:
        raise _invalid(field, f"{size[0]} x {size[1]} pixels", _FEWER)


def _orientation(image: Image.Image) -> object:
    """What EXIF or XMP says about the orientation; None where they cannot be read."""
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except _TooManyParts:
        raise
    except Exception:  # Pillow raises what its parser of damaged metadata meets
        return None


def _rgb(image: Image.Image) -> Image.Image:
    """The pixels of an image that is loaded."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    rows = max(1, _STRIP // image.width)
    boxes = (
        (0, top, image.width, min(top + rows, image.height)) for top in range(0, image.height, rows)
    )
    return _joined(image.size, map(image.crop, boxes))


def _joined(size: tuple[int, int], strips: Iterable[Image.Image]) -> Image.Image:
    """An RGB image of strips, from top to bottom."""
    strips = iter(strips)
    # The process of a WebP has freed memory when it writes: the image is allocated after that.
    first = next(strips)
    rgb = Image.new("RGB", size)
    top = 0
    for strip in itertools.chain([first], strips):
        rgb.paste(_rgb_strip(strip), (0, top))
        top += strip.height
    return rgb


def _rgb_strip(strip: Image.Image) -> Image.Image:
    if strip.mode in _WIDE_MODES:
        strip = strip.convert("I").point(lambda value: value * _SCALE).convert("L")
    if "A" not in strip.getbands() and "transparency" not in strip.info:
        return strip.convert("RGB")
    strip = strip.convert("RGBA")
    background = Image.new("RGBA", strip.size, (255, 255, 255, 255))
    return Image.alpha_composite(background, strip).convert("RGB")
