"""Leave out the oldest messages of a conversation that is longer than the context."""

import dataclasses
from collections.abc import Sequence

from hearthd.server.api.conversations.turn import rendered
from hearthd.server.api.conversations.turn_fields import TurnFields
from hearthd.server.services.language_service import LanguageService
from hearthd.text.conversation import Conversation, Message, ToolResult
from hearthd.text.errors import TextTooLong
from hearthd.text.templates.chat_template import Prompt


async def fitted(
    service: LanguageService, body: TurnFields, conversation: Conversation, context: int
) -> tuple[Prompt, int]:
    """The prompt of a turn and the number of messages that were left out.

    The system messages and the last message stay. The prompt has less than `context` tokens, unless
    they are longer. Raises InvalidRequest and TextTooLong.
    """
    starts = _later_starts(conversation.messages)
    prompt = await _short_prompt(service, body, conversation, context) if starts else None
    if prompt is not None:
        return prompt, 0
    kept = conversation
    # Shorter conversations have shorter prompts, so bisection finds the longest one that fits.
    low, high = 0, len(starts) - 1
    while low <= high:
        middle = (low + high) // 2
        candidate = _after(conversation, starts[middle])
        shorter = await _short_prompt(service, body, candidate, context)
        if shorter is not None or low == high == len(starts) - 1:
            kept, prompt, high = candidate, shorter, middle - 1
        else:
            low = middle + 1
    dropped = len(conversation.messages) - len(kept.messages)
    return prompt or await rendered(service, body, kept), dropped


async def _short_prompt(
    service: LanguageService, body: TurnFields, conversation: Conversation, context: int
) -> Prompt | None:
    """The prompt of a turn, or None if it does not have less than `context` tokens."""
    try:
        prompt = await rendered(service, body, conversation)
    except TextTooLong:
        return None
    return prompt if len(prompt.ids) < context else None


def _later_starts(messages: Sequence[Message | ToolResult]) -> list[int]:
    """Indices of the questions with which a shorter conversation can begin."""
    questions = [
        index
        for index, message in enumerate(messages)
        if isinstance(message, Message) and message.role == "user"
    ]
    return questions[1:]


def _after(conversation: Conversation, start: int) -> Conversation:
    """The conversation from a message on, with all system messages before it."""
    messages = conversation.messages
    system = [message for message in messages[:start] if _is_system(message)]
    return dataclasses.replace(conversation, messages=[*system, *messages[start:]])


def _is_system(message: Message | ToolResult) -> bool:
    return isinstance(message, Message) and message.role == "system"
