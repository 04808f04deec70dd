"""POST /api/chat: Ollama's route for conversations, with tools."""

from typing import Annotated

from fastapi import Request
from pydantic import ConfigDict, Field

from hearthd.server.api.conversations.truncation import truncated
from hearthd.server.api.conversations.turn import begin, rendered
from hearthd.server.api.current_service import language_service
from hearthd.server.api.inert_fields import Ignored, or_ignored
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.ndjson import LineStream, respond_in_lines
from hearthd.server.api.ollama import messages as ollama_messages
from hearthd.server.api.ollama.answers import (
    ChatLineWriter,
    Clock,
    OllamaChatAnswer,
    OllamaMessage,
    stamp,
)
from hearthd.server.api.ollama.error_bodies import ERRORS
from hearthd.server.api.ollama.messages import OllamaMessageParam, OllamaTool
from hearthd.server.api.ollama.request_fields import AnswerFields
from hearthd.server.api.ollama.unload import unloaded_name
from hearthd.server.api.openapi import json_lines
from hearthd.server.api.surface import surface
from hearthd.text.conversation import Conversation

router = surface("Ollama", ERRORS, JsonRoute)


class OllamaChatRequest(AnswerFields):
    """A conversation to continue."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "messages": [{"role": "user", "content": "Say hello."}],
                    "options": {"num_predict": 32},
                    "stream": False,
                }
            ]
        }
    )

    messages: list[OllamaMessageParam] = Field(
        default_factory=list,
        description="The conversation so far, oldest message first. Without messages the model is "
        "loaded, or with a `keep_alive` of 0 unloaded.",
    )
    tools: list[Annotated[OllamaTool | Ignored, or_ignored(OllamaTool, ("function",))]] = Field(
        default_factory=list, description="Functions that the model may call."
    )

    def conversation(self) -> Conversation:
        """The conversation and its tools; raises InvalidRequest."""
        return Conversation(
            messages=ollama_messages.messages(self.messages),
            tools=ollama_messages.tools(self.tools),
        )


@router.post(
    "/api/chat",
    summary="Answer a conversation (Ollama)",
    response_model=OllamaChatAnswer,
    response_model_exclude_unset=True,
    responses=json_lines(OllamaChatAnswer),
)
async def ollama_chat(body: OllamaChatRequest, request: Request) -> OllamaChatAnswer | LineStream:
    """Generate the next message of a conversation, in the form of Ollama's API.

    Unless `stream` is false, the answer is a stream of JSON lines, each an OllamaChatAnswer.
    """
    clock = Clock()
    if body.unloads and not body.messages:
        return _empty(await unloaded_name(body, request), "unload")
    service = await language_service(request, body)
    clock.loaded()
    if not body.messages:
        return _empty(service.name, "load")
    turn, conversation = body.turn(service), body.conversation()
    if body.truncate:
        context = min(service.context, body.options.context or service.context)
        conversation, prompt, request.state.dropped_messages = await truncated(
            request, service, turn, conversation, max_tokens=context - 1
        )
    else:
        prompt = await rendered(request, service, turn, conversation)
    choices = await begin(
        service,
        turn,
        conversation,
        prompt,
        max_tokens=body.max_tokens,
        logprobs=body.alternatives,
    )
    writer = ChatLineWriter(choices, model=service.name, clock=clock)
    return await respond_in_lines(writer, request, stream=body.stream)


def _empty(model: str, reason: str) -> OllamaChatAnswer:
    """The answer to a request without messages."""
    return OllamaChatAnswer.model_validate(
        {
            **stamp(model),
            "message": OllamaMessage(role="assistant", content=""),
            "done": True,
            "done_reason": reason,
        }
    )
