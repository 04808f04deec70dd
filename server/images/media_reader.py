"""The images and sounds of a conversation, as the model of a bundle reads them."""

from __future__ import annotations

import functools
from typing import IO, TYPE_CHECKING

from hearthd.bundle import PIXEL_MEMORY
from hearthd.runtime.interface import NO_TOKEN
from hearthd.server.images.image_memory import ImageMemory
from hearthd.text.errors import NotSupported

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from hearthd.bundle import GridInput, ImageInput, SoundInput
    from hearthd.server.images.image_reader import ImageReader
    from hearthd.server.images.read_media import ReadMedia
    from hearthd.server.images.sound_reader import SoundReader
    from hearthd.text.conversation import Media, MediaKind
    from hearthd.text.text_request import ImageSquare
    from hearthd.text.tokenizer import Tokenizer


class MediaReader:
    """Reads images and sound as the settings say; None: it reads none. For one thread."""

    def __init__(
        self,
        images: ImageInput | GridInput | None,
        sound: SoundInput | None,
        tokenizer: Tokenizer,
    ) -> None:
        self._image_settings, self._sound_settings = images, sound
        settings: dict[MediaKind, ImageInput | GridInput | SoundInput] = {}
        if images is not None:
            settings["image"] = images
        if sound is not None:
            settings["audio"] = sound
        self.markers: Mapping[MediaKind, str] = {
            kind: each.marker for kind, each in settings.items()
        }
        self.lines: Collection[MediaKind] = [
            kind for kind, each in settings.items() if getattr(each, "own_line", False)
        ]
        self._placeholders = {
            tokenizer.special_id(each.placeholder) for each in settings.values()
        } - {None}
        self._memory = ImageMemory(PIXEL_MEMORY)

    def read(self, item: Media) -> ReadMedia:
        """Decode an image or a sound; raises InvalidRequest, NotSupported or ImagesFull."""
        return self._sounds.read(item) if item.kind == "audio" else self._images.read(item)

    def read_sound(self, file: IO[bytes], field: str) -> ReadMedia:
        """Decode a sound file; raises as `read`."""
        return self._sounds.read_file(file, field)

    def positions(self, ids: Sequence[int], squares: Sequence[ImageSquare]) -> tuple[int, ...]:
        """The ids of a prompt, with NO_TOKEN for each row of its images and sounds.

        A placeholder that is of none of them is one position.
        """
        counts = (square.rows // square.lines for square in squares for _ in range(square.lines))
        return tuple(self._positions(ids, counts))

    def _positions(self, ids: Sequence[int], counts: Iterator[int]) -> Iterator[int]:
        for id_ in ids:
            if id_ in self._placeholders:
                yield from (NO_TOKEN,) * next(counts, 1)
            else:
                yield id_

    @functools.cached_property
    def _images(self) -> ImageReader:
        assert self._image_settings is not None, "a model that reads no images"
        try:
            from hearthd.server.images.image_reader import ImageReader  # imports Pillow
        except ModuleNotFoundError as error:
            raise NotSupported(
                "images: the server has no library to decode them; install hearthd[images]"
            ) from error
        return ImageReader(self._image_settings, self._memory)

    @functools.cached_property
    def _sounds(self) -> SoundReader:
        assert self._sound_settings is not None, "a model that reads no sound"
        try:
            from hearthd.server.images.sound_reader import SoundReader  # imports soundfile
        except ModuleNotFoundError as error:
            raise NotSupported(
                "sound: the server has no library to decode it; install hearthd[speech]"
            ) from error
        return SoundReader(self._sound_settings, self._memory)
