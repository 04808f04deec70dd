"""Start the answers to a conversation, for every route that takes one."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastapi import Request

from hearthd.server.api.conversations.turn_fields import TurnFields
from hearthd.server.api.disconnect import unless_disconnected
from hearthd.server.completions.choices import Choices
from hearthd.server.services.language_service import LanguageService
from hearthd.text.conversation import Conversation
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from hearthd.server.services.language_service import ReadImages
    from hearthd.text.templates.prompt import Prompt


async def rendered(
    request: Request,
    service: LanguageService,
    body: TurnFields,
    conversation: Conversation,
    read: "ReadImages | None" = None,
) -> "Prompt":
    """The prompt for a turn, and the reasoning that may follow it.

    `read` are the images that the request has read so far; the turn's are added.
    Raises InvalidRequest, ImagesFull or ClientDisconnected: downloads of images take seconds.
    """
    work = service.render(
        conversation,
        read,
        tools=[tool.as_template() for tool in conversation.tools if not tool.is_deferred],
        variables=body.template_variables(),
        **body.ending(conversation),
    )
    with _errors_at(conversation.field):
        prompt = await unless_disconnected(request, work, is_answer=False)
    reasoning = prompt.reasoning and dataclasses.replace(
        prompt.reasoning, budget=body.reasoning_budget, split=body.reasoning_format != "none"
    )
    return dataclasses.replace(prompt, reasoning=reasoning)


async def begin(
    service: LanguageService,
    body: TurnFields,
    conversation: Conversation,
    prompt: "Prompt",
    *,
    max_tokens: int | None,
    logprobs: int | None,
    choices: int = 1,
) -> Choices:
    """Submit `choices` answers to a rendered turn.

    Raises InvalidRequest, QueueFull, Unavailable.
    """
    return await service.complete_all(
        [
            dataclasses.replace(
                body.completion(
                    prompt.ids, max_tokens=max_tokens, logprobs=logprobs, choice=choice
                ),
                images=prompt.images,
                tools=service.template.tool_use(conversation.tools, conversation.choice),
                reasoning=prompt.reasoning,
                field=conversation.field,
            )
            for choice in range(choices)
        ],
        answers_per_prompt=choices,
    )


@contextlib.contextmanager
def _errors_at(field: str) -> Iterator[None]:
    """Report the chat template's errors of `messages` at the field that has them."""
    try:
        yield
    except InvalidRequest as error:
        if error.field != "messages" or field == "messages":
            raise
        raise InvalidRequest(field=field, got=error.got, expected=error.expected) from error
