"""Start the answers to a conversation, for every OpenAI route that takes one."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hearthd.server.api.openai.chat_messages import ChatMessage, conversation
from hearthd.server.api.openai.turn_fields import TurnFields
from hearthd.server.errors import InvalidRequest
from hearthd.server.services.language_service import LanguageService
from hearthd.server.text.choices import Choices
from hearthd.server.text.tool_calls.tools import Tool, ToolChoice

if TYPE_CHECKING:
    from hearthd.server.text.templates.chat_template import Prompt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """A conversation whose next message the model generates.

    variables  of the chat template, besides those that the request names
    field      name of the messages in the request, for errors
    """

    messages: Sequence[ChatMessage]
    tools: Sequence[Tool]
    choice: ToolChoice
    variables: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    field: str = "messages"


async def rendered(service: LanguageService, body: TurnFields, turn: Turn) -> "Prompt":
    """The prompt for a turn, and the reasoning that may follow it; raises InvalidRequest."""
    with _errors_at(turn.field):
        messages = conversation(turn.messages)
        prompt = await asyncio.to_thread(
            service.template.prompt,
            messages,
            tools=[tool.as_template() for tool in _visible(turn)],
            variables={**turn.variables, **body.template_variables()},
            **body.ending(messages[-1]),
        )
    reasoning = prompt.reasoning and dataclasses.replace(
        prompt.reasoning, budget=body.reasoning_budget, split=body.reasoning_format != "none"
    )
    return dataclasses.replace(prompt, reasoning=reasoning)


def _visible(turn: Turn) -> Sequence[Tool]:
    return () if turn.choice.mode == "none" else turn.tools


async def begin(
    service: LanguageService,
    body: TurnFields,
    turn: Turn,
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
                tools=service.template.tool_use(_visible(turn), turn.choice),
                reasoning=prompt.reasoning,
                field=turn.field,
            )
            for choice in range(choices)
        ],
        answers_per_prompt=choices,
    )


@contextlib.contextmanager
def _errors_at(field: str) -> Iterator[None]:
    """Report errors of `messages` at the field from which they were converted."""
    try:
        yield
    except InvalidRequest as error:
        if field == "messages" or not error.field.startswith("messages"):
            raise
        raise InvalidRequest(field=field, got=error.got, expected=error.expected) from error
