"""Drop the oldest turns of a conversation that does not fit in the context."""

import dataclasses
from typing import TYPE_CHECKING

from fastapi import Request

from hearthd.server.api.conversations.turn import rendered
from hearthd.server.api.conversations.turn_fields import TurnFields
from hearthd.server.services.language_service import LanguageService
from hearthd.text.conversation import Conversation, Message, is_system
from hearthd.text.errors import TextTooLong

if TYPE_CHECKING:
    from hearthd.server.services.language_service import ReadImages
    from hearthd.text.templates.prompt import Prompt


async def truncated(
    request: Request,
    service: LanguageService,
    body: TurnFields,
    conversation: Conversation,
    *,
    max_tokens: int,
) -> tuple[Conversation, "Prompt", int]:
    """The conversation without its oldest turns, its prompt, and the number of dropped messages.

    As few turns are dropped as give a prompt of at most `max_tokens`. A turn begins with a message
    from the user; the last one stays, and so do all system messages, so the prompt may be too long.
    Raises InvalidRequest, TextTooLong and ClientDisconnected.
    """
    starts = _starts(conversation)
    read: ReadImages = {}
    low, high = 0, len(starts) - 1
    middle = 0  # first try the whole conversation
    best: Prompt | None = None  # of `high`
    while low < high:
        try:
            prompt = await rendered(
                request, service, body, _from(conversation, starts[middle]), read
            )
        except TextTooLong:
            low = middle + 1
        else:
            if len(prompt.ids) <= max_tokens:
                high, best = middle, prompt
            else:
                low = middle + 1
        middle = (low + high) // 2
    shortened = _from(conversation, starts[low])
    if best is None:
        best = await rendered(request, service, body, shortened, read)
    return shortened, best, len(conversation.messages) - len(shortened.messages)


def _starts(conversation: Conversation) -> list[int]:
    """Where a shorter conversation can begin: at its start, and at every later question."""
    questions = [
        index
        for index, message in enumerate(conversation.messages)
        if isinstance(message, Message) and message.role == "user"
    ]
    return [0, *questions[1:]]


def _from(conversation: Conversation, start: int) -> Conversation:
    """The conversation from a message on, with all system messages before it."""
    messages = conversation.messages
    kept = [*filter(is_system, messages[:start]), *messages[start:]]
    return dataclasses.replace(conversation, messages=kept)
