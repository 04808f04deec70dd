"""POST /v1/responses/input_tokens and /v1/chat/completions/input_tokens: the length of a prompt."""

from typing import Literal

from fastapi import Request
from pydantic import BaseModel, Field

from hearthd.server.api.conversations.turn import rendered
from hearthd.server.api.conversations.turn_fields import TurnFields
from hearthd.server.api.current_service import language_service
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.openai.chat import ChatRequest
from hearthd.server.api.openai.responses import ResponsesRequest, earlier_items
from hearthd.server.api.stored.state import CurrentState
from hearthd.server.api.surface import surface
from hearthd.server.services.language_service import LanguageService
from hearthd.text.conversation import Conversation

router = surface("OpenAI", ERRORS, JsonRoute)


class InputTokens(BaseModel):
    """The length of a conversation."""

    object: Literal["response.input_tokens"]
    input_tokens: int = Field(description="Tokens of the conversation, as the model reads it.")


@router.post("/v1/responses/input_tokens", summary="Count the tokens of a request (Responses API)")
async def response_input_tokens(
    body: ResponsesRequest, request: Request, state: CurrentState
) -> InputTokens:
    """Return the number of tokens that the model reads for a request to /v1/responses."""
    service = await language_service(request, body)
    return await _count(request, body, body.after(earlier_items(body, state), state), service)


@router.post("/v1/chat/completions/input_tokens", summary="Count the tokens of a conversation")
async def chat_input_tokens(body: ChatRequest, request: Request) -> InputTokens:
    """Return the number of tokens that the model reads for a request to /v1/chat/completions."""
    service = await language_service(request, body)
    return await _count(request, body, body.conversation(), service)


async def _count(
    request: Request, body: TurnFields, conversation: Conversation, service: LanguageService
) -> InputTokens:
    prompt = await rendered(request, service, body, conversation)
    return InputTokens(object="response.input_tokens", input_tokens=len(prompt.ids))
