"""A sound of a conversation, as the model of a bundle reads it."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from typing import IO, TYPE_CHECKING

import numpy as np

from hearthd.runtime.media.log_mel import SAMPLE_RATE
from hearthd.runtime.media.sound_features import sound_windows
from hearthd.server.errors import not_on_disk
from hearthd.server.images.image_data import from_url
from hearthd.server.images.read_media import ReadMedia
from hearthd.server.speech.sound_files import open_sound
from hearthd.text.errors import InvalidRequest
from hearthd.text.text_request import ImageSquare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.bundle import SoundInput
    from hearthd.server.images.image_memory import ImageMemory
    from hearthd.text.conversation import Media


_BLOCK = 30 * SAMPLE_RATE  # samples that are decoded at once


class SoundReader:
    """Reads sound as `settings` say. For one thread, which also decodes images."""

    def __init__(self, settings: SoundInput, memory: ImageMemory) -> None:
        self._settings, self._memory = settings, memory

    def read(self, sound: Media) -> ReadMedia:
        """Decode a sound; raises InvalidRequest, ImagesFull, StorageFull or NotSupported."""
        data = from_url(sound.url, sound.field, "audio")
        with _on_disk(data, sound.field) as file:
            return self.read_file(file, sound.field)

    def read_file(self, file: IO[bytes], field: str) -> ReadMedia:
        """As `read`, of a file."""
        samples = self._samples(file, field)
        windows = sound_windows(samples, self._settings)
        if not windows:
            raise _invalid(
                field,
                f"{len(samples) / SAMPLE_RATE:.3g} s",
                f"at least {self._settings.min_seconds} s",
            )
        squares = tuple(map(self._square, windows))
        return ReadMedia("audio", squares, self._settings.text(len(squares)))

    def _square(self, frames: NDArray[np.float32]) -> ImageSquare:
        """A window of a sound."""
        self._memory.take(frames, frames.nbytes)
        return ImageSquare(
            media=frames,
            digest=hashlib.sha256(b"sound" + frames.tobytes()).digest(),
            rows=self._settings.rows(len(frames)),
        )

    def _samples(self, file: IO[bytes], field: str) -> NDArray[np.float32]:
        """The samples of a sound file: more than fit are not decoded."""
        limit = self._settings.max_samples
        try:
            sound, starts = open_sound(file), range(0, limit, _BLOCK)
            blocks = [sound.read(start, min(_BLOCK, limit - start)) for start in starts]
            goes_on = len(sound.read(limit, 1)) > 0
        except InvalidRequest as error:  # of a file in a form
            raise InvalidRequest(field=field, got=error.got, expected=error.expected) from None
        if goes_on:
            seconds = f"{self._settings.max_seconds:g} s"
            raise _invalid(field, f"more than {seconds}", f"at most {seconds}: split it")
        return np.concatenate(blocks)


def _on_disk(data: bytes, field: str) -> IO[bytes]:
    """A temporary file, at its start; raises StorageFull or NotSupported."""
    with contextlib.ExitStack() as opened:
        try:
            file = opened.enter_context(tempfile.TemporaryFile())
            file.write(data)
            file.seek(0)
        except OSError as error:
            raise not_on_disk(field, error) from error
        opened.pop_all()
        return file


def _invalid(field: str, got: str, expected: str) -> InvalidRequest:
    return InvalidRequest(field=field, got=got, expected=f"a sound of {expected}")
