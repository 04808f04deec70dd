"""From a conversation to a prompt, with the images in their places."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from hearthd.text.errors import NotSupported
from hearthd.text.templates.image_texts import ImageTexts

if TYPE_CHECKING:
    from hearthd.bundle import ImageInput
    from hearthd.server.images.image_reader import ImageReader
    from hearthd.text.conversation import Conversation
    from hearthd.text.templates.chat_template import ChatTemplate, Prompt
    from hearthd.text.tokenizer import Tokenizer


class ConversationRenderer:
    """Renders conversations for a model that reads images as `settings` say, or reads none."""

    def __init__(self, settings: ImageInput | None, tokenizer: Tokenizer) -> None:
        self._settings = settings
        self._tokenizer = tokenizer

    def render(self, template: ChatTemplate, conversation: Conversation, **options: Any) -> Prompt:
        """The prompt for a conversation; raises InvalidRequest, NotSupported or ImagesFull.

        `options` are those of ChatTemplate.prompt. For any thread: it decodes images.
        """
        messages = conversation.as_template(images=self._settings is not None)
        if not conversation.images:
            return template.prompt(messages, **options)
        images = self._reader.read(conversation.images)
        texts = ImageTexts(self._reader.marker, tuple(image.text for image in images))
        prompt = template.prompt(messages, images=texts, **options)
        squares = tuple(square for image in images for square in image.squares)
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
