"""Images and sound that clients send."""

from __future__ import annotations

import base64
import functools
import io
import math
from typing import TYPE_CHECKING

import numpy as np
import soundfile
from PIL import Image

from hearthd.bundle import PIXEL_MEMORY, SoundInput
from hearthd.server.images.decoding import decoded
from hearthd.server.images.grids import grids
from hearthd.server.images.image_memory import ImageMemory
from hearthd.server.images.sound_reader import SoundReader
from hearthd.server.images.squares import squares
from hearthd.text.conversation import Media
from hearthd.text.errors import InvalidRequest
from tests.baker.small_smolvlm import pixels
from tests.server.images import test_grids, test_squares
from tools.fuzz.mutations import damaged_bytes
from tools.fuzz.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from tools.fuzz.reader import Files

_ORIENTATION = 0x0112  # of EXIF
_SOUND = SoundInput(
    features="log_mel", width=128, frames=4, max_rows=25, marker="<|audio|>", start="<|audio>",
    placeholder="<|audio|>", end="<audio|>",
)  # fmt: skip


def _images() -> Files:
    colors = Image.fromarray(pixels(40, 30))
    exif = Image.Exif()
    exif[_ORIENTATION] = 6
    files = {}
    for name, image, options in (
        ("colors.png", colors, {}),
        ("palette.png", colors.convert("P"), {"transparency": 3}),
        ("wide.png", colors.convert("I;16"), {}),
        ("turned.jpeg", colors, {"exif": exif}),
        ("ink.jpeg", colors.convert("CMYK"), {"progressive": True}),
        ("colors.webp", colors, {}),
        ("frames.gif", colors, {"save_all": True, "append_images": [colors.rotate(9)]}),
    ):
        file = io.BytesIO()
        image.save(file, name.partition(".")[2], **options)
        files[name] = file.getvalue()
    return files


def _read_images(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        image = decoded(path.read_bytes(), "image")
        cut = squares(image, test_squares.SETTINGS)
        assert len(cut.pixels) == cut.rows * cut.columns + 1
        for settings in (test_grids.SETTINGS, test_grids.FILLED, test_grids.CUT):
            height, width, _ = grids(image, settings, "image").pixels[-1].shape  # of the whole
            assert not height % settings.step
            assert not width % settings.step
            assert height * width <= settings.max_pixels


def _sounds() -> Files:
    """A tenth of a second in each format."""
    tone = (0.5 * np.sin(np.arange(800) / 5)).astype(np.float32)
    files = {}
    for name, options in (
        ("tone.wav", {"subtype": "PCM_16"}),
        ("floats.wav", {"subtype": "FLOAT"}),
        ("packed.wav", {"subtype": "MS_ADPCM"}),
        ("tone.flac", {}),
        ("tone.ogg", {}),
        ("opus.ogg", {"subtype": "OPUS"}),
        ("tone.mp3", {}),
        ("tone.aiff", {}),
        ("tone.au", {}),
        ("tone.caf", {}),
    ):
        file = io.BytesIO()
        both = np.stack([tone, -0.5 * tone], axis=1)
        soundfile.write(file, both, 8000, format=name.rpartition(".")[2].upper(), **options)
        files[name] = file.getvalue()
    return files


def _read_sounds(folder: Path) -> None:
    reader = SoundReader(_SOUND, ImageMemory(PIXEL_MEMORY))
    for path in sorted(folder.iterdir()):
        url = base64.b64encode(path.read_bytes()).decode()
        (square,) = reader.read(Media(kind="audio", field="sound", url=url)).squares
        assert 0 < square.rows <= _SOUND.max_rows
        assert math.isfinite(square.media.sum())


MEDIA = (
    Reader(
        name="image",
        files=functools.cache(_images),
        damage=dict.fromkeys(_images(), damaged_bytes),
        read=_read_images,
        refusals=(InvalidRequest,),
    ),
    Reader(
        name="sound",
        files=functools.cache(_sounds),
        damage=dict.fromkeys(_sounds(), damaged_bytes),
        read=_read_sounds,
        refusals=(InvalidRequest,),
    ),
)
