"""The prompts of llama-server's routes: texts, token ids, lists of both, and texts with images."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from hearthd.server.api.conversations.content import kind_of
from hearthd.server.api.fields import Text
from hearthd.server.api.openai.embedding_inputs import TextObject
from hearthd.server.services.language_service import LanguageService
from hearthd.text.conversation import Media
from hearthd.text.errors import InvalidRequest
from hearthd.text.text_request import ImageSquare

MAX_PROMPTS = 16


class MediaObject(TextObject):
    """A text, with images and sounds for a model that reads them."""

    multimodal_data: list[Text] = Field(
        default_factory=list,
        max_length=64,
        description="Images and sounds in base64, in the order of the media markers in "
        "`prompt_string`: the marker in `/props`, or `<__media__>` in a text without it.",
    )

    def media(self, field: str) -> list[Media]:
        """The images and sounds for the text layer; `field` is the path of the object."""
        return [
            Media(
                kind=kind_of(data),
                field=f"{field}.multimodal_data[{index}]",
                url=f"data:;base64,{data}",
            )
            for index, data in enumerate(self.multimodal_data)
        ]


Prompts = Text | MediaObject | list[int | Text | MediaObject | list[int | Text]]


@dataclass(frozen=True)
class GivenPrompt:
    """A prompt of a request: a text, or token ids, which have -1 for each row of its media."""

    content: str | tuple[int, ...]
    images: tuple[ImageSquare, ...] = ()


async def read_prompts(given: Prompts, service: LanguageService) -> list[GivenPrompt]:
    """The prompts of a request: one, or if the list has no ids at its top level, many.

    Raises InvalidRequest or ImagesFull.
    """
    if not isinstance(given, list):
        return [await _read(given, "prompt", service)]
    items = [item for item in given if not isinstance(item, list)]
    if len(items) == len(given) and (not items or any(isinstance(item, int) for item in items)):
        return [GivenPrompt(await _encode(_mixed(items), service))]
    if len(given) > MAX_PROMPTS or any(isinstance(item, int) for item in items):
        raise InvalidRequest(
            field="prompt",
            got=f"a list of {len(given)}",
            expected=f"one list of ids and texts, or a list of at most {MAX_PROMPTS} prompts",
        )
    return [
        GivenPrompt(await _encode(item, service))
        if isinstance(item, list)
        else await _read(item, f"prompt[{index}]", service)
        for index, item in enumerate(given)
        if not isinstance(item, int)
    ]


def _mixed(items: Sequence[int | str | MediaObject]) -> list[int | str]:
    """The ids and texts of a prompt; raises InvalidRequest for an image among them."""
    mixed: list[int | str] = []
    for index, item in enumerate(items):
        if isinstance(item, MediaObject):
            if item.multimodal_data:
                raise InvalidRequest(
                    field=f"prompt[{index}].multimodal_data",
                    got=len(item.multimodal_data),
                    expected="no images or sounds among token ids: send a text with media markers",
                )
            mixed.append(item.text())
        else:
            mixed.append(item)
    return mixed


async def _read(item: str | MediaObject, field: str, service: LanguageService) -> GivenPrompt:
    if isinstance(item, str):
        return GivenPrompt(item)
    if not item.multimodal_data:
        return GivenPrompt(item.text())
    prompt = await service.renderer.render_text(
        item.text(), item.media(field), f"{field}.multimodal_data"
    )
    return GivenPrompt(prompt.ids, prompt.images)


async def _encode(items: Sequence[int | str], service: LanguageService) -> tuple[int, ...]:
    return await asyncio.to_thread(service.tokenizer.encode_mixed, items)
