"""POST /generate: continue a prompt, whole or as a stream."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Coroutine
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from server.api.errors import ErrorBody
from server.api.service import Serving
from server.api.sse import CompletionStream
from server.engine.sampler import SamplingOptions
from server.errors import ClientDisconnected
from server.text.completion import SEEDS, Completion, CompletionRequest, Piece, Summary

router = APIRouter(responses={code: {"model": ErrorBody} for code in (400, 422, 500, 503)})

T = TypeVar("T")


def _whole(text: str) -> str:
    """Half a surrogate pair can stand in JSON, and is no text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("text without lone surrogates") from error
    return text


Text = Annotated[str, AfterValidator(_whole)]
StopString = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_whole)]


class GenerateRequest(BaseModel):
    """What to continue, and how. The defaults are llama-server's, but for max_tokens."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        json_schema_extra={"examples": [{"prompt": "The capital of France is", "max_tokens": 16}]},
    )

    prompt: Text | list[int] = Field(
        description="Text, or token ids taken as they are. A text gets the model's first token "
        "(<bos>) put in front, and the names of special tokens in it are read as those tokens.",
    )
    max_tokens: int = Field(
        256, ge=1, description="The most tokens to generate; the context may end an answer sooner."
    )
    temperature: float = Field(0.8, ge=0, description="0 takes the most likely token every time.")
    top_k: int = Field(40, ge=0, description="Keep the k most likely tokens; 0 keeps all.")
    top_p: float = Field(
        0.95, ge=0, le=1, description="Keep the fewest tokens that together have this probability."
    )
    min_p: float = Field(
        0.05, ge=0, le=1, description="Keep tokens with this share of the best one's probability."
    )
    repeat_penalty: float = Field(
        1.0, ge=0.01, le=100, description="Weakens the last 64 tokens' logits; 1 is off."
    )
    seed: int = Field(
        -1, ge=-1, lt=SEEDS, description="Equal seeds give equal answers; -1 draws one."
    )
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] = Field(
        default_factory=list,
        description="End the answer before any of these strings, besides the model's own end.",
    )
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="Report each token's log-probability and those of so many alternatives."
    )
    stream: bool = Field(False, description="Send the answer as server-sent events.")


class Alternative(BaseModel):
    """A token and the natural logarithm of the model's probability for it."""

    id: int
    text: str
    logprob: float


class TokenLogprob(Alternative):
    """A token of the answer, with the most likely tokens in its place, best first."""

    top: list[Alternative]


class Usage(BaseModel):
    """Numbers of tokens. The token by which the model ends an answer is not counted."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Timings(BaseModel):
    """In milliseconds; prefill ends, and decode begins, with the first token.

    `tokens_per_second` counts the tokens after the first; null if there are none.
    """

    queue_ms: float
    prefill_ms: float
    decode_ms: float
    tokens_per_second: float | None


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

    finish_reason: Literal["stop", "length"]
    usage: Usage
    timings: Timings
    seed: int


@router.post("/generate", response_model=GenerateResponse, response_model_exclude_unset=True)
async def generate(
    body: GenerateRequest, service: Serving, request: Request
) -> GenerateResponse | CompletionStream:
    """Continue a prompt.

    With `stream`, each event is a StreamEvent and the last one a GenerateResponse without text.
    """
    completion = await service.complete(_completion_request(body))
    with_logprobs = body.logprobs is not None
    if body.stream:
        return CompletionStream(completion, _events(completion, with_logprobs))
    with completion:
        return await _unless_disconnected(request, _collect(completion, with_logprobs))


def _completion_request(body: GenerateRequest) -> CompletionRequest:
    return CompletionRequest(
        prompt=body.prompt if isinstance(body.prompt, str) else tuple(body.prompt),
        max_tokens=body.max_tokens,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop),
        sampling=SamplingOptions(
            temperature=body.temperature,
            top_k=body.top_k,
            top_p=body.top_p,
            min_p=body.min_p,
            repeat_penalty=body.repeat_penalty,
            logprobs=body.logprobs,
        ),
        seed=None if body.seed == -1 else body.seed,
    )


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


async def _unless_disconnected(request: Request, work: Coroutine[None, None, T]) -> T:
    """The result of the work, or ClientDisconnected as soon as the client is gone."""
    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnected("the client went away before the answer was complete")
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _response(summary: Summary, pieces: list[Piece], with_logprobs: bool) -> GenerateResponse:
    return GenerateResponse(
        **_content(pieces, with_logprobs),
        finish_reason=summary.finish_reason,
        usage=Usage(
            prompt_tokens=summary.prompt_tokens,
            completion_tokens=summary.completion_tokens,
            total_tokens=summary.prompt_tokens + summary.completion_tokens,
        ),
        timings=Timings(**dataclasses.asdict(summary.timings)),
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
                **dataclasses.asdict(token.chosen),
                top=[Alternative(**dataclasses.asdict(other)) for other in token.top],
            )
            for piece in pieces
            for token in piece.logprobs
        ]
    return content
