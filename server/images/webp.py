"""WebP files, which a child process with little memory decodes: webp_process.py says why."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import PIL
from PIL import Image

from hearthd.bundle import MAX_PIXELS, megabytes
from hearthd.runtime.system.resource_limits import has_spent_its_time, limit_child
from hearthd.server.decoder_process import start_decoder
from hearthd.server.images import webp_process

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATH = str(Path(PIL.__file__).parents[1])
# Of the 12 bytes per pixel that bundle/memory_sum.py counts, the libraries of the process and the
# server's copy of the pixels take the rest.
_MEMORY = 10 * MAX_PIXELS
_FAILED = f"a WebP file that is damaged or takes more than {megabytes(_MEMORY)} MB to decode"
_SLOW = "a WebP file that takes too long to decode"


class WebP:
    """A WebP file that a process has opened.

    size         width and height in pixels
    orientation  as EXIF numbers it; 0 if the file does not say
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        *size, self.orientation, mode = webp_process.HEADER.unpack(
            self._read(webp_process.HEADER.size)
        )
        self.size: tuple[int, int] = (size[0], size[1])
        self._mode = mode.rstrip(b"\0").decode()

    def strips(self) -> Iterator[Image.Image]:
        """The pixels of the first frame, from top to bottom; raises OSError."""
        width, height = self.size
        rows = max(1, webp_process.STRIP // width)
        for top in range(0, height, rows):
            size = width, min(rows, height - top)
            data = self._read(size[0] * size[1] * len(self._mode))
            yield Image.frombytes(self._mode, size, data)

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise OSError(_SLOW if has_spent_its_time(self._process.wait()) else _FAILED)
        return data


def is_webp(data: bytes) -> bool:
    """Whether a file says that it is one of WebP."""
    return data.startswith(b"RIFF") and data[8:12] == b"WEBP"


@contextlib.contextmanager
def open_webp(data: bytes, seconds: int) -> Iterator[WebP]:
    """A WebP file, whose process ends with the block or after its `seconds` of a core.

    Raises OSError for a file that cannot be opened, or not with the process's memory, and
    DecoderNotStarted.
    """
    command = (sys.executable, "-I", "-S", webp_process.__file__, _PATH)
    with start_decoder(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        try:
            limit_child(process.pid, memory=_MEMORY, seconds=seconds)
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(data)
            yield WebP(process)
        finally:
            process.kill()
