"""A sound of a conversation, as the model of a bundle reads it."""

from __future__ import annotations

import hashlib
import tempfile
import threading
from typing import TYPE_CHECKING

from hearthd.runtime.log_mel import SAMPLE_RATE
from hearthd.runtime.sound_features import sound_features
from hearthd.server.images.image_data import from_url
from hearthd.server.images.read_media import ReadMedia
from hearthd.server.speech.sound_files import open_sound
from hearthd.text.errors import InvalidRequest
from hearthd.text.text_request import ImageSquare

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hearthd.bundle import SoundInput
    from hearthd.server.images.image_memory import ImageMemory
    from hearthd.text.conversation import Media

_FILE_MEMORY = 2**20  # a larger file is on disk while it is decoded
# One sound is decoded at a time, in the memory of an image: bundle/memory_sum.py.
_LOCK = threading.Lock()


class SoundReader:
    """Reads sound as `settings` say. For any thread."""

    def __init__(self, settings: SoundInput, memory: ImageMemory) -> None:
        self._settings, self._memory = settings, memory
        self._max_samples = round(settings.max_seconds * SAMPLE_RATE)

    def read(self, sound: Media) -> ReadMedia:
        """Decode a sound; raises InvalidRequest or ImagesFull."""
        data = from_url(sound.url, sound.field, "audio")
        with _LOCK:
            samples = self._samples(data, sound.field)
            features, count = sound_features(samples, mels=self._settings.mels)
        if not count:
            raise _invalid(sound.field, f"{len(samples) / SAMPLE_RATE:.3g} s", "at least 0.02 s")
        frames = features[:count]
        self._memory.take(frames, features.nbytes)
        square = ImageSquare(
            media=frames,
            digest=hashlib.sha256(b"sound" + frames.tobytes()).digest(),
            rows=self._settings.rows(count),
        )
        return ReadMedia("audio", (square,), self._settings.text)

    def _samples(self, data: bytes, field: str) -> NDArray[np.float32]:
        """The samples of a sound file: more than fit are not decoded."""
        with tempfile.SpooledTemporaryFile(_FILE_MEMORY) as file:
            file.write(data)
            file.seek(0)
            try:
                samples = open_sound(file).read(0, self._max_samples + 1)
            except InvalidRequest as error:  # of a file in a form
                raise InvalidRequest(field=field, got=error.got, expected=error.expected) from None
        if len(samples) > self._max_samples:
            limit = f"{self._max_samples / SAMPLE_RATE:g} s"
            raise _invalid(field, f"more than {limit}", f"at most {limit}: split it")
        return samples


def _invalid(field: str, got: str, expected: str) -> InvalidRequest:
    return InvalidRequest(field=field, got=got, expected=f"a sound of {expected}")
