"""A conversation in the form of OpenAI's chat route, as Python code and files have it."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field, ValidationError

from hearthd.server.api.fields import Fields
from hearthd.server.api.invalid_fields import invalid_field
from hearthd.server.api.openai import chat_messages
from hearthd.text.conversation import Conversation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.server.services.language_service import LanguageService

AnyFields = TypeVar("AnyFields", bound=Fields)


class Messages(Fields):
    """The messages of a conversation, oldest first."""

    messages: list[chat_messages.ChatMessage] = Field(min_length=1)


def prompt_ids(
    service: LanguageService,
    messages: Sequence[chat_messages.ChatMessage],
    variables: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[int, ...]:
    """The token ids of the prompt for a conversation; raises InvalidRequest.

    `variables` are the chat template's.
    """
    conversation = Conversation(messages=chat_messages.messages(messages))
    return asyncio.run(service.render(conversation, variables=variables)).ids


def validated(schema: type[AnyFields], values: Mapping[str, Any]) -> AnyFields:
    """The fields with these values; raises InvalidRequest."""
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise invalid_field(problems, values) from error
