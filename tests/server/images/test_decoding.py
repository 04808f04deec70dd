"""Image files of every kind become RGB of 8 bits, and bad ones one sentence."""

from __future__ import annotations

import contextlib
import io
import itertools
import struct
import time
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from hearthd.bundle import MAX_PIXELS
from hearthd.bundle.memory_sum import _DECODING_BYTES
from hearthd.server.images.decoding import decoded
from hearthd.text.errors import InvalidRequest
from tests.baker.small_smolvlm import pixels
from tests.server.images.peak_memory import peak_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLORS = pixels(11, 7)
GRAY = COLORS[..., 0]
ALPHA = np.linspace(0, 255, GRAY.size).round().astype(np.uint8).reshape(GRAY.shape)
ORIENTATION = 0x0112


def saved(image: Image.Image, format_: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format_, **options)
    return file.getvalue()


def read(data: bytes) -> NDArray[np.int64]:
    image = decoded(data, "image")
    assert image.mode == "RGB"
    return np.asarray(image, np.int64)


def repeated(gray: NDArray[Any]) -> NDArray[np.int64]:
    return np.repeat(gray.astype(np.int64)[..., None], 3, axis=2)


def on_white(colors: NDArray[Any], alpha: NDArray[Any]) -> NDArray[np.float64]:
    share = alpha[..., None] / 255
    return np.asarray(share * colors + (1 - share) * 255)


@pytest.mark.parametrize("format_", ["PNG", "WEBP"])
def test_lossless_files_keep_every_pixel(format_: str) -> None:
    data = saved(Image.fromarray(COLORS), format_, lossless=True)
    assert np.array_equal(read(data), COLORS)


def test_gray_and_two_colors() -> None:
    assert np.array_equal(read(saved(Image.fromarray(GRAY), "PNG")), repeated(GRAY))
    bits = Image.fromarray(GRAY > 120)
    assert bits.mode == "1"
    assert np.array_equal(read(saved(bits, "PNG")), repeated(np.where(GRAY > 120, 255, 0)))


def test_sixteen_bits_are_scaled_to_eight() -> None:
    wide = np.arange(GRAY.size, dtype=np.uint16).reshape(GRAY.shape) * 850
    assert np.abs(read(saved(Image.fromarray(wide), "PNG")) - repeated(wide // 257)).max() <= 1


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_parts_are_white(mode: str) -> None:
    colors = COLORS if mode == "RGBA" else repeated(GRAY)
    layers = [*np.moveaxis(COLORS, 2, 0), ALPHA] if mode == "RGBA" else [GRAY, ALPHA]
    data = saved(Image.fromarray(np.stack(layers, 2), mode), "PNG")
    assert np.abs(read(data) - on_white(colors, ALPHA)).max() <= 1


def test_a_transparent_color_of_a_palette_is_white() -> None:
    image = Image.fromarray(np.array([[0, 1], [1, 0]], np.uint8), "P")
    image.putpalette([200, 10, 10, 10, 200, 10])
    green, white = [10, 200, 10], [255, 255, 255]
    data = saved(image, "PNG", transparency=0)
    assert read(data).tolist() == [[white, green], [green, white]]


@pytest.mark.parametrize(("mode", "tolerance"), [("RGB", 25), ("L", 12), ("CMYK", 25)])
def test_jpeg_files(mode: str, tolerance: int) -> None:
    smooth = np.asarray(Image.fromarray(pixels(8, 8)).resize((64, 48), Image.Resampling.BICUBIC))
    image = Image.fromarray(smooth).convert(mode)
    expected = np.asarray(image.convert("RGB"), np.int64)
    assert np.abs(read(saved(image, "JPEG", quality=95)) - expected).max() <= tolerance


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_an_image(orientation: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    flipped = COLORS[:, ::-1] if orientation in (2, 4, 5, 7) else COLORS
    turns = {1: 0, 2: 0, 3: 2, 4: 2, 5: 1, 6: 3, 7: 3, 8: 1}[orientation]
    data = saved(Image.fromarray(COLORS), "PNG", exif=exif)
    assert np.array_equal(read(data), np.rot90(flipped, turns))


def test_the_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (4, 3), color) for color in ("red", "blue")]
    for format_ in ("GIF", "WEBP"):
        data = saved(frames[0], format_, save_all=True, append_images=frames[1:], lossless=True)
        assert (read(data) == [[[255, 0, 0]] * 4] * 3).all(), format_


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\0\0II*\0",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\x02\0\0\x006\0\0\0" + bytes(4),
    ],
    ids=["cut off", "at no address", "a text as the orientation"],
)
def test_damaged_metadata_turns_nothing(format_: str, exif: bytes) -> None:
    image = Image.fromarray(COLORS)
    assert np.array_equal(
        read(saved(image, format_, exif=exif, lossless=True)),
        read(saved(image, format_, lossless=True)),
    )


def chunk(name: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    checksum = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + checksum


def png(width: int, height: int) -> bytes:
    """A file that says it has these many pixels, and has none."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


def scans(count: int) -> bytes:
    """A progressive JPEG of 8 x 8 gray pixels, with further scans that change nothing."""
    data = saved(Image.new("L", (8, 8), 200), "JPEG", progressive=True)
    scan = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + (count - data.count(b"\xff\xda")) * scan + data[-2:]


PROFILE = chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(2**20)))
# Millions of parts would take a minute, or a quarter of a GB; scans take as long as their pixels.
MANY_PARTS = {
    "chunks of PNG": png(8, 8)[:33] + 20_000 * chunk(b"prVt", b"") + png(8, 8)[33:],
    "color profiles of PNG": png(8, 8)[:33] + 65 * PROFILE + png(8, 8)[33:],
    "markers of JPEG": b"\xff\xd8" + 20_000 * b"\xff\xe5\0\2" + scans(20)[2:],
    "EXIF in parts": b"\xff\xd8" + 20_000 * b"\xff\xe1\0\x09Exif\0\0a" + scans(20)[2:],
    "scans of JPEG": scans(257),
    "blocks of GIF": b"GIF89a\1\0\1\0\0\0\0" + 20_000 * b"!\xfe\1c\0",
}


@pytest.mark.parametrize("data", MANY_PARTS.values(), ids=MANY_PARTS)
def test_a_file_in_many_parts_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"in too many parts.*fewer chunks, markers and scans"):
        decoded(data, "image")


@pytest.mark.parametrize("seconds", [0.01, 1.0])
def test_a_file_that_takes_too_long_to_read_is_refused(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, a read takes `seconds`."""
    data = saved(Image.fromarray(COLORS), "PNG")
    data = data[:33] + 20 * chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(9))) + data[33:]
    clock = itertools.count()
    monkeypatch.setattr(time, "thread_time", lambda: next(clock) * seconds)
    refused = pytest.raises(InvalidRequest, match="in too many parts")
    with refused if seconds == 1 else contextlib.nullcontext():
        assert np.array_equal(read(data), COLORS)


def test_scans_of_a_progressive_jpeg_and_bytes_after_it_are_read() -> None:
    video = 100 * b"\xff\xda"
    assert (read(scans(20) + video) == 200).all()


SIDE = 3000
TURNED = Image.Exif()
TURNED[ORIENTATION] = 6


@pytest.mark.parametrize(
    ("mode", "format_", "share"),
    [
        ("RGBA", "PNG", 1.0),
        ("LA", "PNG", 1.0),
        ("I;16", "PNG", 1.0),
        ("CMYK", "JPEG", 1.0),
        ("RGBA", "WEBP", 0.5),
    ],
)
def test_decoding_takes_the_memory_of_the_sum(mode: str, format_: str, share: float) -> None:
    """Of as many pixels as each format may have, of half of MAX_PIXELS."""
    image = Image.new(mode, (SIDE, round(share * SIDE)))
    data = saved(image, format_, exif=TURNED, progressive=True, lossless=True, method=0)
    decoded(data, "image")
    assert peak_memory(data) <= 1.1 * _DECODING_BYTES * SIDE * SIDE


def test_texts_of_a_png_file_are_limited() -> None:
    """Each character takes four bytes, because one of a text does."""
    text = zlib.compress("\U0001f600".encode() + bytes(2**20 - 100))
    chunks = [chunk(b"iTXt", b"%d\0\1\0\0\0" % number + text) for number in range(60)]
    for count in (3, 60):
        data = saved(Image.new("L", (8, 8), 200), "PNG")
        data = data[:33] + b"".join(chunks[:count]) + data[33:]
        assert peak_memory(data) <= 40_000_000
        refused = pytest.raises(InvalidRequest, match="Too much memory used in text chunks")
        with refused if count == 60 else contextlib.nullcontext():
            assert (read(data) == 200).all()


def test_webp_may_have_fewer_pixels() -> None:
    decoded(saved(Image.new("L", (3840, 2160)), "WEBP", method=0), "image")
    with pytest.raises(InvalidRequest, match=f"expected .* {2**23} in WebP"):
        decoded(saved(Image.new("L", (4096, 2049)), "WEBP", method=0), "image")


@pytest.mark.parametrize("format_", ["PNG", "JPEG", "WEBP", "GIF"])
def test_damaged_files_are_read_or_refused(format_: str) -> None:
    rng = np.random.default_rng(0)
    data = saved(Image.fromarray(pixels(60, 50)), format_, exif=TURNED)
    for _ in range(20 if format_ == "WEBP" else 200):  # each WebP file starts a process
        damaged = bytearray(data)
        for position in rng.integers(0, min(len(data), 300), 3):
            damaged[position] = rng.integers(256)
        with contextlib.suppress(InvalidRequest):
            decoded(bytes(damaged), "image")


@pytest.mark.parametrize("side", [4097, 20_000, 2**31 - 1])
def test_a_bomb_is_refused_before_its_pixels_are_allocated(side: int) -> None:
    message = f'got "[^"]+ pixels", expected an image of at most {MAX_PIXELS} pixels'
    with pytest.raises(InvalidRequest, match=message):
        decoded(png(side, side), "image")


@pytest.mark.parametrize("size", [(2**16, 1), (1, 2**16)])
def test_a_long_line_of_pixels_is_refused(size: tuple[int, int]) -> None:
    """To resize one of 16 million would take 0.8 GB."""
    with pytest.raises(InvalidRequest, match=r"expected .* and 65535 on a side"):
        decoded(saved(Image.new("L", size), "PNG"), "image")


@pytest.mark.parametrize("format_", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_truncated_file_is_refused(format_: str) -> None:
    data = saved(Image.fromarray(pixels(60, 50)), format_)
    with pytest.raises(InvalidRequest, match=r"expected (a complete image file|an image in the)"):
        decoded(data[: len(data) // 2], "image")


@pytest.mark.parametrize("data", [b"", b"no image", saved(Image.fromarray(COLORS), "BMP")])
def test_other_formats_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="expected an image in the format JPEG, PNG, WebP"):
        decoded(data, "image")
