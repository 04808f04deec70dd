"""POST /v1/fim/completions: Mistral's route to fill in the middle, which editors call."""

import asyncio
from collections.abc import Iterable

from fastapi import Request
from pydantic import ConfigDict, Field
from typing_extensions import override

from hearthd.server.api.current_service import language_service
from hearthd.server.api.fields import MaxTokens, Text
from hearthd.server.api.generation_fields import GenerationFields, RandomSeed
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.openai.chat import (
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatResponse,
    ChatWriter,
)
from hearthd.server.api.openai.shared_fields import FinishWord, identity
from hearthd.server.api.openapi import streams
from hearthd.server.api.sse import CompletionStream, respond
from hearthd.server.api.surface import surface
from hearthd.text.infill import infill_prompt

router = surface("Mistral", ERRORS, JsonRoute)


class FimRequest(RandomSeed, GenerationFields):
    """A gap to fill in, or a text to continue."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"prompt": "def add(", "suffix": "return c\n", "max_tokens": 16}]
        }
    )

    prompt: Text = Field(description="The text before the gap.")
    suffix: Text = Field(
        "",
        description="The text after the gap, for models whose vocabulary has tokens to fill in the "
        "middle. It is a 501 if the model lacks them. Without it, `prompt` is continued.",
    )
    max_tokens: MaxTokens = Field(
        None,
        description="Maximum number of tokens to generate. By default, and with -1, the rest of "
        "the context.",
    )


@router.post(
    "/v1/fim/completions",
    summary="Fill the gap between two texts (Mistral)",
    response_model=ChatResponse,
    response_model_exclude_unset=True,
    responses=streams(ChatChunk),
)
async def fim_completions(body: FimRequest, request: Request) -> ChatResponse | CompletionStream:
    """Generate the text of a gap, in the form of a chat's answer.

    With `stream`, the answer is a stream of server-sent events, each a ChatChunk, that ends with
    `data: [DONE]`.
    """
    service = await language_service(request, body)
    prompt: str | tuple[int, ...] = body.prompt
    if body.suffix:
        prompt = await asyncio.to_thread(
            infill_prompt, service.tokenizer, body.prompt, body.suffix, []
        )
    completion = body.completion(prompt, max_tokens=body.max_tokens, logprobs=None)
    writer = FimWriter(await service.complete_all([completion]), identity(service, "fim-"))
    return await respond(writer, request, stream=body.stream)


class FimWriter(ChatWriter):
    """Writes the events of a chat, each with a text: editors join them without a check."""

    @override
    def _begin(self) -> Iterable[ChatChunk]:
        yield self._chunk(self._empty(None))

    @override
    def _last(self, index: int, reason: FinishWord) -> ChatChunkChoice:
        return self._empty(reason)

    def _empty(self, reason: FinishWord | None) -> ChatChunkChoice:
        delta = ChatDelta(role="assistant", content="")
        return ChatChunkChoice(index=0, delta=delta, logprobs=None, finish_reason=reason)
