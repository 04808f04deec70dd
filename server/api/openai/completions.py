"""POST /v1/completions: OpenAI's older surface, for prompts as they are."""

import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from server.api.current_service import CurrentLanguageService
from server.api.disconnect import unless_disconnected
from server.api.fields import Text, prompts
from server.api.http_errors import ERRORS
from server.api.openai.shared_fields import (
    FinishWord,
    OpenAIFields,
    OpenAIUsage,
    StreamOptions,
    finish_reason,
    head,
    usage,
)
from server.api.sse import CompletionStream, streams
from server.errors import InvalidRequest
from server.services.language_service import LanguageService
from server.text.answer import Candidate, Summary, TokenLogprobs
from server.text.choices import Choices

router = APIRouter(responses=ERRORS, tags=["OpenAI"])

Prompt = Text | list[int]


class CompletionBody(OpenAIFields):
    """What to continue, and how. Sampling has llama-server's names and defaults."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"prompt": "The capital of France is", "max_tokens": 16}]}
    )

    prompt: Prompt | Annotated[list[Text | list[int]], Field(min_length=1, max_length=16)] = Field(
        description="A text, or token ids as they are, or a list of texts or of lists of ids."
    )
    max_tokens: int = Field(16, ge=1, description="The most tokens to generate for each choice.")
    n: int = Field(1, ge=1, le=16, description="So many answers to each prompt, by seeds in a row.")
    echo: bool = Field(False, description="Put the prompt in front; not together with logprobs.")
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="Report each token's log-probability and those of so many alternatives."
    )
    stream_options: StreamOptions | None = Field(None, description="Only with `stream`.")


class Logprobs(BaseModel):
    """One entry per token; `text_offset` counts characters from the beginning of the text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class Choice(BaseModel):
    """An answer, or in a stream more of it."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: FinishWord | None


class CompletionAnswer(BaseModel):
    """The answers; in a stream, one event with more of one of them."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: OpenAIUsage | None = None


@router.post(
    "/v1/completions",
    response_model=CompletionAnswer,
    response_model_exclude_unset=True,
    responses=streams(CompletionAnswer),
)
async def completions(
    body: CompletionBody, service: CurrentLanguageService, request: Request
) -> CompletionAnswer | CompletionStream:
    """Continue prompts.

    With `stream`, each event is an answer in the same form with more of one choice, until
    `data: [DONE]`.
    """
    _check(body)
    choices = await service.complete_all(
        [
            body.completion(
                prompt, max_tokens=body.max_tokens, logprobs=body.logprobs, choice=choice
            )
            for _, prompt in prompts(body.prompt, "prompt")
            for choice in range(body.n)
        ]
    )
    parts = _parts(body, service, choices)
    first = head(service, "cmpl-", "text_completion")
    if body.stream:
        return CompletionStream(choices, _events(body, first, parts), done=True)
    with choices:
        return await unless_disconnected(request, _whole(first, parts))


def _check(body: CompletionBody) -> None:
    if body.echo and body.logprobs is not None:
        raise InvalidRequest(field="echo", got=True, wanted="false, or no logprobs")
    if body.stream_options and not body.stream:
        raise InvalidRequest(field="stream_options", got="an object", wanted="null without stream")


async def _parts(
    body: CompletionBody, service: LanguageService, choices: Choices
) -> AsyncIterator[Choice | OpenAIUsage]:
    """More of one choice or another, and the usage at the end."""
    lengths: dict[int, int] = {}
    summaries: dict[int, Summary] = {}
    if body.echo:
        for place, (_, prompt) in enumerate(prompts(body.prompt, "prompt")):
            text = prompt if isinstance(prompt, str) else service.tokenizer.decode(prompt)
            for index in range(place * body.n, (place + 1) * body.n):
                yield Choice(index=index, text=text, logprobs=None, finish_reason=None)
    async for index, piece in choices.pieces():
        if isinstance(piece, Summary):
            summaries[index] = piece
            reason = finish_reason(piece.finish_reason)
            yield Choice(index=index, text="", logprobs=None, finish_reason=reason)
        elif piece.text or piece.logprobs:
            found = None
            if body.logprobs is not None:
                found = _logprobs(piece.logprobs, lengths.get(index, 0))
                lengths[index] = lengths.get(index, 0) + _length(piece.logprobs)
            yield Choice(index=index, text=piece.text, logprobs=found, finish_reason=None)
    yield usage([summary for _, summary in sorted(summaries.items())], choices=body.n)


def _logprobs(tokens: tuple[TokenLogprobs, ...], start: int) -> Logprobs:
    """The first token begins at the character `start` of the answer."""
    ends = itertools.accumulate((len(token.chosen.text) for token in tokens), initial=start)
    return Logprobs(
        tokens=[_label(token.chosen) for token in tokens],
        token_logprobs=[token.chosen.logprob for token in tokens],
        top_logprobs=[{_label(top): top.logprob for top in token.top} for token in tokens],
        text_offset=[end for _, end in zip(tokens, ends, strict=False)],
    )


def _length(tokens: tuple[TokenLogprobs, ...]) -> int:
    return sum(len(token.chosen.text) for token in tokens)


def _label(candidate: Candidate) -> str:
    """The token's text, or OpenAI's way to write bytes that are no text by themselves."""
    try:
        return candidate.bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in candidate.bytes)


async def _events(
    body: CompletionBody, first: dict[str, Any], parts: AsyncIterator[Choice | OpenAIUsage]
) -> AsyncIterator[CompletionAnswer]:
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    usages: dict[str, Any] = {"usage": None} if with_usage else {}
    async for part in parts:
        if isinstance(part, Choice):
            yield CompletionAnswer(**first, choices=[part], **usages)
        elif with_usage:
            yield CompletionAnswer(**first, choices=[], usage=part)


async def _whole(
    first: dict[str, Any], parts: AsyncIterator[Choice | OpenAIUsage]
) -> CompletionAnswer:
    gathered: dict[int, list[Choice]] = defaultdict(list)
    async for part in parts:
        if isinstance(part, OpenAIUsage):
            choices = [_joined(gathered[index]) for index in sorted(gathered)]
            return CompletionAnswer(**first, choices=choices, usage=part)
        gathered[part.index].append(part)
    raise AssertionError("the parts ended without a usage")


def _joined(parts: list[Choice]) -> Choice:
    logprobs = [part.logprobs for part in parts if part.logprobs]
    joined = {
        name: [entry for found in logprobs for entry in getattr(found, name)]
        for name in Logprobs.model_fields
    }
    return Choice(
        index=parts[0].index,
        text="".join(part.text for part in parts),
        logprobs=Logprobs(**joined) if logprobs else None,
        finish_reason=parts[-1].finish_reason,
    )
