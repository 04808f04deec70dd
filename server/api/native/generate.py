"""POST /generate: continue a prompt; the answer comes at once or as a stream."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from hearthd.server.api.current_service import language_service
from hearthd.server.api.disconnect import unless_disconnected
from hearthd.server.api.fields import Logprobs, MaxTokens, Text
from hearthd.server.api.generation_fields import GenerationFields
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.openapi import streams
from hearthd.server.api.sse import CompletionStream
from hearthd.server.api.usage import Usage, reports
from hearthd.server.text.answer import (
    AnswerSummary,
    FinishReason,
    Piece,
    PromptProgress,
    Timings,
    TokenCandidate,
)
from hearthd.server.text.completion import Completion

router = APIRouter(route_class=JsonRoute, responses=ERRORS, tags=["Generate"])


class GenerateRequest(GenerationFields):
    """A prompt to continue. Names and defaults are llama-server's, except for max_tokens."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"prompt": "The capital of France is", "max_tokens": 16}]},
    )

    prompt: Text | list[int] = Field(
        description="Text or token ids. Text gets the model's first token (<bos>) in front, and "
        "names of special tokens in it are read as those tokens. Token ids are used unchanged.",
    )
    max_tokens: MaxTokens = Field(
        256,
        description="Maximum number of tokens to generate. The answer ends earlier at the end of "
        "the context. -1 sets no other limit.",
    )
    logprobs: Logprobs | None = Field(
        None,
        description="Report the log-probability of each token, and of this many alternatives. "
        "Nothing is reported by default.",
    )


class Alternative(BaseModel):
    """A token that the model considered."""

    id: int = Field(description="The token id.")
    text: str = Field(description="The token's text.")
    logprob: float = Field(description="Natural logarithm of the token's probability.")


class GeneratedToken(Alternative):
    """A token of the answer."""

    top: list[Alternative] = Field(
        description="The most likely tokens at this position, best first."
    )


class StreamEvent(BaseModel):
    """An event of a stream: one token, and the text that is final so far."""

    text: str = Field(
        description="More text of the answer. Empty while a character or a stop string is "
        "incomplete."
    )
    token_ids: list[int] = Field(description="The ids of the answer's tokens.")
    logprobs: list[GeneratedToken] = Field(
        default=[], description="One entry per token; present if the request has `logprobs`."
    )
    timings: Timings | None = Field(
        default=None, description="The timings so far, if the request has `timings_per_token`."
    )
    prompt_progress: PromptProgress | None = Field(
        default=None, description="Present before the answer, if the request has `return_progress`."
    )


class GenerateResponse(StreamEvent):
    """A complete answer; in a stream the last event, with empty `text` and `token_ids`.

    `text` ends before a stop string, `token_ids` with the token that completed the stop string.
    """

    finish_reason: FinishReason = Field(
        description="stop: the model ended the answer, or a stop string did. length: max_tokens or "
        "the end of the context. timeout: timeout_ms. tool_calls: not on this route."
    )
    usage: Usage
    timings: Timings
    seed: int = Field(description="The seed: the same request with this seed repeats the answer.")


@router.post(
    "/generate",
    summary="Continue a prompt",
    response_model=GenerateResponse,
    response_model_exclude_unset=True,
    responses=streams(StreamEvent),
)
async def generate(body: GenerateRequest, request: Request) -> GenerateResponse | CompletionStream:
    """Generate text after a prompt.

    With `stream`, the answer is a stream of server-sent events: a StreamEvent for each token, and
    at the end a GenerateResponse without text.
    """
    service = await language_service(request, body)
    completion = await service.complete(
        body.completion(body.prompt, max_tokens=body.max_tokens, logprobs=body.logprobs)
    )
    with_logprobs = body.logprobs is not None
    if body.stream:
        return CompletionStream(completion, _events(completion, with_logprobs))
    with completion:
        return await unless_disconnected(request, _collect(completion, with_logprobs))


async def _events(completion: Completion, with_logprobs: bool) -> AsyncIterator[StreamEvent]:
    async for piece in completion.pieces():
        if isinstance(piece, AnswerSummary):
            yield _response(piece, [], with_logprobs=False)
        else:
            yield StreamEvent(**_content([piece], with_logprobs), **reports(piece))


async def _collect(completion: Completion, with_logprobs: bool) -> GenerateResponse:
    pieces: list[Piece] = []
    async for piece in completion.pieces():
        if isinstance(piece, AnswerSummary):
            return _response(piece, pieces, with_logprobs)
        pieces.append(piece)
    raise AssertionError("a completion ended without a summary")


def _response(summary: AnswerSummary, pieces: list[Piece], with_logprobs: bool) -> GenerateResponse:
    return GenerateResponse(
        **_content(pieces, with_logprobs),
        finish_reason=summary.finish_reason,
        usage=Usage(
            prompt_tokens=summary.prompt_tokens,
            completion_tokens=summary.completion_tokens,
            total_tokens=summary.prompt_tokens + summary.completion_tokens,
        ),
        timings=summary.timings,
        seed=summary.seed,
    )


def _content(pieces: list[Piece], with_logprobs: bool) -> dict[str, Any]:
    """The fields of a StreamEvent, with `logprobs` only if the request has them."""
    content: dict[str, Any] = {
        "text": "".join(piece.text for piece in pieces),
        "token_ids": [id_ for piece in pieces for id_ in piece.token_ids],
    }
    if with_logprobs:
        content["logprobs"] = [
            GeneratedToken(
                **_alternative(token.chosen),
                top=[Alternative(**_alternative(other)) for other in token.top],
            )
            for piece in pieces
            for token in piece.logprobs
        ]
    return content


def _alternative(candidate: TokenCandidate) -> dict[str, Any]:
    return {"id": candidate.id, "text": candidate.text, "logprob": candidate.logprob}
