"""A process that decodes a WebP file: `python -I -S webp_process.py PATH <FILE`.

The tables of a lossless WebP can take a thousand times as many bytes as the file, and libwebp has
no limit for them. So the process is not the server's: webp.py limits its memory. PATH is the folder
of Pillow's package.

Written to the output: HEADER, and then the pixels of the first frame from top to bottom. The output
of a file that cannot be decoded ends early.
"""

from __future__ import annotations

import io
import struct
import sys

HEADER = struct.Struct("<III4s")  # width, height, orientation or 0, and Pillow's name of the mode
STRIP = 2**18  # pixels that are written at a time


def decode() -> None:
    """Decode the file that is the input from its start."""
    from PIL import ExifTags, Image

    output = sys.stdout.buffer
    with Image.open(io.BytesIO(sys.stdin.buffer.read()), formats=["WEBP"]) as image:
        try:
            orientation = image.getexif().get(ExifTags.Base.Orientation)
        except Exception:  # Pillow raises what its parser of damaged metadata meets
            orientation = None
        number = orientation if orientation in range(9) else 0
        output.write(HEADER.pack(*image.size, number, image.mode.encode()))
        output.flush()
        image.load()
        rows = max(1, STRIP // image.width)
        for top in range(0, image.height, rows):
            strip = image.crop((0, top, image.width, min(top + rows, image.height)))
            output.write(strip.tobytes())


if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    decode()
