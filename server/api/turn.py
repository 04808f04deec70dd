"""A turn of a conversation, on its way from an OpenAI surface to the engine."""

import asyncio
import dataclasses

from server.api.openai import OpenAIFields
from server.service import Service
from server.text.chat import Message, Tool
from server.text.choices import Choices


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """What the model is to answer. `one_call` ends an answer after its first tool call."""

    messages: list[Message]
    tools: list[Tool]
    one_call: bool


async def begin(
    service: Service,
    body: OpenAIFields,
    turn: Turn,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    choices: int = 1,
) -> Choices:
    """Render and accept a turn; raises InvalidRequest, QueueFull or Unavailable."""
    template = service.template
    prompt = await asyncio.to_thread(template.prompt, turn.messages, tools=turn.tools)
    return await service.complete_all(
        [
            dataclasses.replace(
                body.completion(
                    prompt.ids, max_tokens=max_tokens, logprobs=logprobs, choice=choice
                ),
                calls=template.calls if turn.tools else None,
                one_call=turn.one_call,
                field="messages",
            )
            for choice in range(choices)
        ]
    )
