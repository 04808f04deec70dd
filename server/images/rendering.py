"""From a conversation to a prompt, with the images in their places."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from hearthd.text.errors import NotSupported
from hearthd.text.templates.image_texts import ImageTexts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.bundle import ImageInput
    from hearthd.server.images.fetching import ImageFetcher
    from hearthd.server.images.image_reader import ImageReader
    from hearthd.text.conversation import Conversation, Media
    from hearthd.text.templates.chat_template import ChatTemplate, Prompt, TemplateMessage
    from hearthd.text.tokenizer import Tokenizer


class ConversationRenderer:
    """Renders conversations for a model that reads images as `settings` say, or reads none.

    With a `fetcher`, images may be at addresses.
    """

    def __init__(
        self, settings: ImageInput | None, tokenizer: Tokenizer, fetcher: ImageFetcher | None
    ) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._fetcher = fetcher

    async def render(
        self, template: ChatTemplate, conversation: Conversation, **options: Any
    ) -> Prompt:
        """The prompt for a conversation; raises InvalidRequest, NotSupported or ImagesFull.

        `options` are those of ChatTemplate.prompt.
        """
        messages = conversation.as_template(images=self._settings is not None)
        images = conversation.images
        if self._fetcher is not None:
            images = await self._fetcher.fetch(images)
        return await asyncio.to_thread(self._render, template, messages, images, options)

    def _render(
        self,
        template: ChatTemplate,
        messages: list[TemplateMessage],
        images: Sequence[Media],
        options: Mapping[str, Any],
    ) -> Prompt:
        if not images:
            return template.prompt(messages, **options)
        read = self._reader.read(images)
        texts = ImageTexts(self._reader.marker, tuple(image.text for image in read))
        prompt = template.prompt(messages, images=texts, **options)
        squares = tuple(square for image in read for square in image.squares)
        return dataclasses.replace(prompt, ids=self._reader.positions(prompt.ids), images=squares)

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
