"""Drop the oldest turns of a conversation that does not fit in the context."""

import dataclasses
from typing import TYPE_CHECKING

from hearthd.server.api.conversations.turn import rendered
from hearthd.server.api.conversations.turn_fields import TurnFields
from hearthd.server.services.language_service import LanguageService
from hearthd.text.conversation import Conversation, Message
from hearthd.text.errors import TextTooLong
from hearthd.text.overflow import prompt_room

if TYPE_CHECKING:
    from hearthd.text.templates.chat_template import Prompt


async def truncated(
    service: LanguageService, body: TurnFields, conversation: Conversation, max_tokens: int | None
) -> tuple[Conversation, "Prompt", int]:
    """The conversation without its oldest turns, its prompt, and the number of dropped messages.

    As few turns are dropped as leave room for the answer. A turn begins with a message from the
    user; the last one stays, and so do system messages before the first, so the result may be too
    long. Raises InvalidRequest and TextTooLong.
    """
    room = prompt_room(service.context, max_tokens)
    starts = _starts(conversation)
    low, high = 0, len(starts) - 1
    middle = 0  # first try the whole conversation
    while low < high:
        try:
            prompt = await rendered(service, body, _from(conversation, starts, middle))
            fits = len(prompt.ids) <= room
        except TextTooLong:
            fits = False
        low, high = (low, middle) if fits else (middle + 1, high)
        middle = (low + high) // 2
    shortened = _from(conversation, starts, low)
    prompt = await rendered(service, body, shortened)
    return shortened, prompt, starts[low] - starts[0]


def _starts(conversation: Conversation) -> list[int]:
    """Where the turns begin, at least one."""
    messages = conversation.messages
    first = next(
        (
            index
            for index, message in enumerate(messages)
            if not (isinstance(message, Message) and message.role in ("system", "developer"))
        ),
        0,
    )
    later = [
        index
        for index, message in enumerate(messages)
        if index > first and isinstance(message, Message) and message.role == "user"
    ]
    return [first, *later]


def _from(conversation: Conversation, starts: list[int], number: int) -> Conversation:
    """The conversation from a turn on, with the system messages at its start."""
    messages = conversation.messages
    kept = [*messages[: starts[0]], *messages[starts[number] :]]
    return dataclasses.replace(conversation, messages=kept)
