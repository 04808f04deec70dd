"""From a conversation to a prompt, with the images and sounds in their places."""

from __future__ import annotations

import asyncio
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any

from hearthd.runtime.interface import NO_TOKEN
from hearthd.server.images.media_reader import MediaReader
from hearthd.server.images.read_media import numbered_texts
from hearthd.text.conversation import Message
from hearthd.text.errors import InvalidRequest
from hearthd.text.media_marker import TEMPLATE_MARKERS, split_at_markers
from hearthd.text.templates.media_texts import MediaTexts
from hearthd.text.templates.prompt import Prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.bundle import LanguageManifest
    from hearthd.server.images.fetching import ImageFetcher
    from hearthd.server.images.read_media import ReadMedia
    from hearthd.text.conversation import Conversation, Media, MediaKind
    from hearthd.text.templates.chat_template import ChatTemplate, TemplateMessage
    from hearthd.text.tokenizer import Tokenizer

# It decodes one image or sound at a time: bundle/memory_sum.py counts the memory of one. The
# threads of the event loop stay free for texts, and the images of requests take turns.
_DECODER = ThreadPoolExecutor(1, thread_name_prefix="media")


class ConversationRenderer:
    """Renders conversations for a model that reads images and sound as its manifest says.

    With a `fetcher`, images may be at addresses.
    """

    def __init__(
        self,
        manifest: LanguageManifest,
        tokenizer: Tokenizer,
        fetcher: ImageFetcher | None,
    ) -> None:
        self._reader = MediaReader(manifest.image_settings, manifest.sound, tokenizer)
        self._preset = manifest.preset
        self._tokenizer = tokenizer
        self._fetcher = fetcher

    async def render(
        self,
        template: ChatTemplate,
        conversation: Conversation,
        read: dict[Media, ReadMedia] | None = None,
        /,
        **options: Any,
    ) -> Prompt:
        """The prompt for a conversation after the messages of the bundle's preset, if it has any.

        Raises InvalidRequest, NotSupported or ImagesFull.
        `read` are the images and sounds that the request has read so far; the conversation's
        are added. `options` as in ChatTemplate.prompt.
        """
        if conversation.messages:
            earlier = [Message(role=m.role, parts=[m.content]) for m in self._preset.messages]
            conversation = conversation.after(self._preset.system, earlier)
        return await self.render_alone(template, conversation, read, **options)

    async def render_alone(
        self,
        template: ChatTemplate,
        conversation: Conversation,
        read: dict[Media, ReadMedia] | None = None,
        /,
        **options: Any,
    ) -> Prompt:
        """As `render`, without the preset."""
        read = {} if read is None else read
        marks = await asyncio.to_thread(self._marks, template)
        messages = conversation.as_template(
            reads=self._reader.markers, marks=marks, lines=self._reader.lines
        )
        unread = [item for item in conversation.media if item not in read]
        complete = unread if self._fetcher is None else await self._fetcher.fetch(unread)
        if unread:
            read.update(zip(unread, await self._read(complete), strict=True))
        media = [read[item] for item in conversation.media]
        return await asyncio.to_thread(self._render, template, messages, media, marks, options)

    def _marks(self, template: ChatTemplate) -> Mapping[MediaKind, str]:
        """What stands in messages for images and sounds that the template does not write."""
        return {
            kind: TEMPLATE_MARKERS[kind]
            for kind, marker in self._reader.markers.items()
            if not template.writes(kind, marker)
        }

    async def render_text(
        self, text: str, media: Sequence[Media], field: str, *, bos: bool = True
    ) -> Prompt:
        """The prompt for a text with a media marker for each image or sound; errors name `field`.

        Names of special tokens in the text are read as those tokens. Raises as `render`.
        """
        for kind, name in (("image", "images"), ("audio", "sound")):
            count = sum(item.kind == kind for item in media)
            if count and kind not in self._reader.markers:
                raise InvalidRequest(
                    field=field, got=count, expected=f"no {name}: the model cannot read {name}"
                )
        texts = split_at_markers(text)
        if len(texts) != len(media) + 1:
            raise InvalidRequest(
                field=field,
                got=len(media),
                expected=f"{len(texts) - 1} images or sounds: one for each media marker in the "
                "text",
            )
        read = await self._read(media)
        return await asyncio.to_thread(self._render_text, texts, read, field, bos)

    async def read_sound(self, file: IO[bytes], field: str) -> ReadMedia:
        """Decode the sound file of a request; raises as MediaReader.read."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_DECODER, self._reader.read_sound, file, field)

    async def _read(self, media: Sequence[Media]) -> list[ReadMedia]:
        """Decode images and sounds one after the other; raises as MediaReader.read."""
        loop = asyncio.get_running_loop()
        return [await loop.run_in_executor(_DECODER, self._reader.read, item) for item in media]

    def _render_text(
        self, texts: Sequence[str], read: Sequence[ReadMedia], field: str, bos: bool
    ) -> Prompt:
        start, *others = texts
        written = numbered_texts(read)
        joined = start + "".join(text + other for text, other in zip(written, others, strict=True))
        encode = self._tokenizer.encode if bos else self._tokenizer.read
        squares = tuple(square for item in read for square in item.squares)
        ids = self._reader.positions(encode(joined), squares)
        if ids.count(NO_TOKEN) != sum(square.rows for square in squares):
            raise InvalidRequest(
                field=field,
                got="the model's token for images or sound in the text",
                expected="a media marker, such as the marker of /props, for each of them",
            )
        return Prompt(text=joined, ids=ids, images=squares)

    def _render(
        self,
        template: ChatTemplate,
        messages: list[TemplateMessage],
        media: Sequence[ReadMedia],
        marks: Mapping[MediaKind, str],
        options: Mapping[str, Any],
    ) -> Prompt:
        if not media:
            return template.prompt(messages, **options)
        kinds = (item.kind for item in media)
        texts = tuple(zip(kinds, numbered_texts(media), strict=True))
        markers = {**self._reader.markers, **marks}
        prompt = template.prompt(messages, media=MediaTexts(markers, texts), **options)
        squares = tuple(square for item in media for square in item.squares)
        ids = self._reader.positions(prompt.ids, squares)
        return dataclasses.replace(prompt, ids=ids, images=squares)
