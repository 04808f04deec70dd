"""From a conversation to a prompt, with the images in their places."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from hearthd.runtime.interface import NO_TOKEN
from hearthd.text.errors import InvalidRequest, NotSupported
from hearthd.text.media_marker import split_at_markers
from hearthd.text.templates.image_texts import ImageTexts
from hearthd.text.templates.prompt import Prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.bundle import GridInput, ImageInput
    from hearthd.server.images.fetching import ImageFetcher
    from hearthd.server.images.image_reader import ImageReader, ReadImage
    from hearthd.text.conversation import Conversation, Media
    from hearthd.text.templates.chat_template import ChatTemplate, TemplateMessage
    from hearthd.text.tokenizer import Tokenizer


class ConversationRenderer:
    """Renders conversations for a model that reads images as `settings` say, or reads none.

    With a `fetcher`, images may be at addresses.
    """

    def __init__(
        self,
        settings: ImageInput | GridInput | None,
        tokenizer: Tokenizer,
        fetcher: ImageFetcher | None,
    ) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._fetcher = fetcher

    async def render(
        self,
        template: ChatTemplate,
        conversation: Conversation,
        read: dict[Media, ReadImage] | None = None,
        /,
        **options: Any,
    ) -> Prompt:
        """The prompt for a conversation; raises InvalidRequest, NotSupported or ImagesFull.

        `read` are the images that the request has read so far; those of the conversation are added.
        `options` are those of ChatTemplate.prompt.
        """
        read = {} if read is None else read
        messages = conversation.as_template(images=self._settings is not None)
        unread = [image for image in conversation.images if image not in read]
        complete = unread if self._fetcher is None else await self._fetcher.fetch(unread)
        if unread:
            found = await asyncio.to_thread(self._reader.read, complete)
            read.update(zip(unread, found, strict=True))
        images = [read[image] for image in conversation.images]
        return await asyncio.to_thread(self._render, template, messages, images, options)

    async def render_text(
        self, text: str, images: Sequence[Media], field: str, *, bos: bool = True
    ) -> Prompt:
        """The prompt for a text with a media marker for each image; errors name `field`.

        Names of special tokens in the text are read as those tokens. Raises as `render`.
        """
        if self._settings is None:
            raise InvalidRequest(
                field=field, got=len(images), expected="no images: the model cannot read images"
            )
        return await asyncio.to_thread(self._render_text, text, images, field, bos)

    def _render_text(self, text: str, images: Sequence[Media], field: str, bos: bool) -> Prompt:
        start, *others = split_at_markers(text)
        if len(others) != len(images):
            raise InvalidRequest(
                field=field,
                got=len(images),
                expected=f"{len(others)} images: one for each media marker in the text",
            )
        read = self._reader.read(images)
        joined = start + "".join(
            image.text + other for image, other in zip(read, others, strict=True)
        )
        encode = self._tokenizer.encode if bos else self._tokenizer.read
        squares = tuple(square for image in read for square in image.squares)
        ids = self._reader.positions(encode(joined), squares)
        if ids.count(NO_TOKEN) != sum(square.rows for square in squares):
            raise InvalidRequest(
                field=field,
                got="the model's token for images in the text",
                expected="a media marker, such as that of /props, for each image",
            )
        return Prompt(text=joined, ids=ids, images=squares)

    def _render(
        self,
        template: ChatTemplate,
        messages: list[TemplateMessage],
        images: Sequence[ReadImage],
        options: Mapping[str, Any],
    ) -> Prompt:
        if not images:
            return template.prompt(messages, **options)
        texts = ImageTexts(self._reader.marker, tuple(image.text for image in images))
        prompt = template.prompt(messages, images=texts, **options)
        squares = tuple(square for image in images for square in image.squares)
        ids = self._reader.positions(prompt.ids, squares)
        return dataclasses.replace(prompt, ids=ids, images=squares)

    @functools.cached_property
    def _reader(self) -> ImageReader:
        assert self._settings is not None, "a model that reads no images"
        try:
            from hearthd.server.images.image_reader import ImageReader  # imports Pillow
        except ModuleNotFoundError as error:
            raise NotSupported(
                "images: the server has no library to decode them; install hearthd[images]"
            ) from error
        return ImageReader(self._settings, self._tokenizer)
