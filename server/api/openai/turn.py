"""A turn of a conversation, on its way from an OpenAI surface to the engine."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from server.api.openai.messages import ChatMessage, FunctionTool, conversation
from server.api.openai.shared_fields import OpenAIFields
from server.errors import InvalidRequest
from server.services.language_service import LanguageService
from server.text.choices import Choices


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """What the model is to answer.

    one_call  ends an answer after its first tool call
    field     what the messages are called in the request, for errors
    """

    messages: Sequence[ChatMessage]
    tools: Sequence[FunctionTool]
    one_call: bool
    field: str = "messages"


async def begin(
    service: LanguageService,
    body: OpenAIFields,
    turn: Turn,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    choices: int = 1,
) -> Choices:
    """Render and accept a turn; raises InvalidRequest, QueueFull or Unavailable."""
    with _blaming(turn.field):
        template = service.template
        prompt = await asyncio.to_thread(
            template.prompt,
            conversation(turn.messages),
            tools=[tool.as_template() for tool in turn.tools],
        )
    return await service.complete_all(
        [
            dataclasses.replace(
                body.completion(
                    prompt.ids, max_tokens=max_tokens, logprobs=logprobs, choice=choice
                ),
                calls=template.calls if turn.tools else None,
                one_call=turn.one_call,
                field=turn.field,
            )
            for choice in range(choices)
        ]
    )


@contextlib.contextmanager
def _blaming(field: str) -> Iterator[None]:
    """Errors of the messages name the field that they came in, whose items are other ones."""
    try:
        yield
    except InvalidRequest as error:
        if field == "messages" or not error.field.startswith("messages"):
            raise
        raise InvalidRequest(field=field, got=error.got, wanted=error.wanted) from error
