"""POST /generate: continue a prompt, whole or as a stream."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from server.api.current_service import CurrentLanguageService
from server.api.disconnect import unless_disconnected
from server.api.fields import Logprobs, Text
from server.api.generation_fields import GenerationFields
from server.api.http_errors import ERRORS
from server.api.sse import CompletionStream, streams
from server.api.usage import Usage
from server.text.answer import Candidate, FinishReason, Piece, Summary, Timings
from server.text.completion import Completion

router = APIRouter(responses=ERRORS)


class GenerateRequest(GenerationFields):
    """What to continue, and how. The defaults are llama-server's, but for max_tokens."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"prompt": "The capital of France is", "max_tokens": 16}]},
    )

    prompt: Text | list[int] = Field(
        description="Text, or token ids taken as they are. A text gets the model's first token "
        "(<bos>) put in front, and the names of special tokens in it are read as those tokens.",
    )
    max_tokens: int = Field(
        256, ge=1, description="The most tokens to generate; the context may end an answer sooner."
    )
    logprobs: Logprobs | None = Field(
        None, description="Report each token's log-probability and those of so many alternatives."
    )


class Alternative(BaseModel):
    """A token and the natural logarithm of the model's probability for it."""

    id: int
    text: str
    logprob: float


class TokenLogprob(Alternative):
    """A token of the answer, with the most likely tokens in its place, best first."""

    top: list[Alternative]


class StreamEvent(BaseModel):
    """One token, and the text that is certain by now (none while a character is incomplete)."""

    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprob] = Field(default=[], description="Only if they were asked for.")


class GenerateResponse(StreamEvent):
    """A whole answer; as the last event of a stream, its end, with no text and no tokens.

    `text` ends before a stop string, `token_ids` with the token that completed it. `seed` repeats
    the answer.
    """

    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    seed: int


@router.post(
    "/generate",
    response_model=GenerateResponse,
    response_model_exclude_unset=True,
    responses=streams(StreamEvent),
)
async def generate(
    body: GenerateRequest, service: CurrentLanguageService, request: Request
) -> GenerateResponse | CompletionStream:
    """Continue a prompt.

    With `stream`, each event is a StreamEvent and the last one a GenerateResponse without text.
    """
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
        if isinstance(piece, Summary):
            yield _response(piece, [], with_logprobs=False)
        else:
            yield StreamEvent(**_content([piece], with_logprobs))


async def _collect(completion: Completion, with_logprobs: bool) -> GenerateResponse:
    pieces: list[Piece] = []
    async for piece in completion.pieces():
        if isinstance(piece, Summary):
            return _response(piece, pieces, with_logprobs)
        pieces.append(piece)
    raise AssertionError("a completion ended without a summary")


def _response(summary: Summary, pieces: list[Piece], with_logprobs: bool) -> GenerateResponse:
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
    """The fields of a StreamEvent; `logprobs` is there only if it was asked for."""
    content: dict[str, Any] = {
        "text": "".join(piece.text for piece in pieces),
        "token_ids": [id_ for piece in pieces for id_ in piece.token_ids],
    }
    if with_logprobs:
        content["logprobs"] = [
            TokenLogprob(
                **_alternative(token.chosen),
                top=[Alternative(**_alternative(other)) for other in token.top],
            )
            for piece in pieces
            for token in piece.logprobs
        ]
    return content


def _alternative(candidate: Candidate) -> dict[str, Any]:
    return {"id": candidate.id, "text": candidate.text, "logprob": candidate.logprob}
