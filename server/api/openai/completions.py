"""POST /v1/completions: OpenAI's older route, for prompts without a chat template."""

import asyncio
import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from hearthd.server.api.current_service import language_service
from hearthd.server.api.fields import MaxTokens, NamedPrompt, Text, prompts
from hearthd.server.api.generation_fields import GenerationFields
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.openai.choice_writer import ChoicesEvent, ChoiceWriter
from hearthd.server.api.openai.shared_fields import (
    FINISH_REASONS,
    FinishWord,
    StreamOptions,
    identity,
)
from hearthd.server.api.openapi import streams
from hearthd.server.api.sse import CompletionStream, respond
from hearthd.server.api.surface import surface
from hearthd.server.completions.choices import Choices
from hearthd.server.services.language_service import LanguageService
from hearthd.text.answer import Piece, TokenCandidate, TokenLogprobs
from hearthd.text.errors import InvalidRequest
from hearthd.text.infill import infill_prompt

router = surface("OpenAI", ERRORS, JsonRoute)

Prompt = Text | list[int]


class CompletionsRequest(GenerationFields):
    """Prompts to continue. Sampling fields have llama-server's names and defaults."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"prompt": "The capital of France is", "max_tokens": 16}]}
    )

    prompt: Prompt | Annotated[list[Text | list[int]], Field(min_length=1, max_length=16)] = Field(
        description="A text, a list of token ids, or a list of up to 16 of either."
    )
    suffix: Text = Field(
        "",
        description="The text after the answer, for models whose vocabulary has tokens to fill in "
        "the middle. It is a 501 if the model lacks them.",
    )
    max_tokens: MaxTokens | Literal[0] = Field(
        16,
        description="Maximum number of tokens to generate for each choice. -1 continues to the end "
        "of the context. 0 only with `echo` and `logprobs`.",
    )
    n: int = Field(
        1, ge=1, le=16, description="Number of answers to each prompt. Their seeds are consecutive."
    )
    echo: bool = Field(
        False,
        description="Return each prompt before its answer. With `logprobs`, the log-probabilities "
        "of its tokens too, which takes a step of the model for each of them.",
    )
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None,
        description="Report the log-probability of each token, and of this many alternatives. "
        "Nothing is reported by default.",
    )
    stream_options: StreamOptions | None = Field(
        None, description="With `stream`: options of the stream."
    )

    @property
    def scores(self) -> bool:
        """Whether the log-probabilities of the prompts are wanted."""
        return self.echo and self.logprobs is not None


class CompletionsLogprobs(BaseModel):
    """Log-probabilities of an answer: lists with one entry per token."""

    tokens: list[str] = Field(description="Text of each token.")
    token_logprobs: list[float | None] = Field(
        description="Natural logarithm of each token's probability. null for the first token of a "
        "prompt."
    )
    top_logprobs: list[dict[str, float] | None] = Field(
        description="The most likely tokens at each position, with their log-probabilities. null "
        "for the first token of a prompt."
    )
    text_offset: list[int] = Field(
        description="Position of each token in the text, in characters from 0: of the character "
        "that it is a part of, if it is not a whole one."
    )


class CompletionsChoice(BaseModel):
    """An answer, or in a stream more of it."""

    index: int = Field(description="Position of the choice, from 0; `n` choices for each prompt.")
    text: str = Field(description="The text.")
    logprobs: CompletionsLogprobs | None = Field(
        description="null if the request has no `logprobs`."
    )
    finish_reason: FinishWord | None = Field(
        description=f"In a stream null until the end. {FINISH_REASONS}"
    )


class CompletionsResponse(ChoicesEvent):
    """The answers; in a stream, an event with more of one of them."""

    object: Literal["text_completion"]
    choices: list[CompletionsChoice] = Field(description="The answers, or more of one of them.")


@router.post(
    "/v1/completions",
    summary="Continue prompts",
    response_model=CompletionsResponse,
    response_model_exclude_unset=True,
    responses=streams(CompletionsResponse),
)
async def completions(
    body: CompletionsRequest, request: Request
) -> CompletionsResponse | CompletionStream:
    """Generate text after one or more prompts.

    With `stream`, the answer is a stream of server-sent events, each a CompletionsResponse with
    more of one choice, that ends with `data: [DONE]`.
    """
    service = await language_service(request, body)
    _check(body)
    read = prompts(body.prompt, "prompt")
    if body.suffix:
        read = await asyncio.to_thread(_gaps, service, read, body.suffix)
    choices = await service.complete_all(
        [
            dataclasses.replace(
                body.completion(
                    prompt, max_tokens=body.max_tokens, logprobs=body.logprobs, choice=choice
                ),
                score_prompt=body.scores,
            )
            for _, prompt in read
            for choice in range(body.n)
        ],
        answers_per_prompt=body.n,
    )
    writer = CompletionsWriter(choices, body, service)
    return await respond(writer, request, stream=body.stream)


def _check(body: CompletionsRequest) -> None:
    if body.max_tokens == 0 and not body.scores:
        raise InvalidRequest(
            field="max_tokens", got=0, expected="at least 1, or echo together with logprobs"
        )
    if body.stream_options and not body.stream:
        raise InvalidRequest(
            field="stream_options", got="an object", expected="null without stream"
        )
    if body.suffix and body.scores:
        raise InvalidRequest(
            field="suffix", got="a text", expected="null with echo together with logprobs"
        )


def _gaps(service: LanguageService, read: list[NamedPrompt], suffix: str) -> list[NamedPrompt]:
    """The prompts whose answers go between a text and the suffix, as token ids."""
    gaps: list[NamedPrompt] = []
    for path, prompt in read:
        if not isinstance(prompt, str):
            raise InvalidRequest(field=path, got="token ids", expected="a text with suffix")
        gaps.append((path, infill_prompt(service.tokenizer, prompt, suffix, [])))
    return gaps


class CompletionsWriter(ChoiceWriter[CompletionsChoice, CompletionsResponse, CompletionsResponse]):
    """Writes the events of the choices."""

    def __init__(
        self, choices: Choices, body: CompletionsRequest, service: LanguageService
    ) -> None:
        super().__init__(
            choices,
            CompletionsResponse,
            {**identity(service, "cmpl-"), "object": "text_completion"},
            n=body.n,
            options=body.stream_options,
        )
        self._body = body
        self._service = service
        # Where the answers begin, in characters: the lengths of the prompts.
        self._starts: dict[int, int] = defaultdict(int)

    @override
    def _begin(self) -> Iterable[CompletionsResponse]:
        """The prompts, with `echo`."""
        if not self._body.echo:
            return
        for number, (_, prompt) in enumerate(prompts(self._body.prompt, "prompt")):
            text = prompt if isinstance(prompt, str) else self._service.tokenizer.decode(prompt)
            first = _first(self._service, prompt) if self._body.scores else None
            for index in range(number * self._n, (number + 1) * self._n):
                self._starts[index] = len(text)
                yield self._chunk(
                    CompletionsChoice(index=index, text=text, logprobs=first, finish_reason=None)
                )

    @override
    def _more(self, index: int, piece: Piece) -> Iterable[CompletionsResponse]:
        if piece.text or piece.logprobs or piece.progress:
            logprobs = None
            if self._body.logprobs is not None:
                # A piece without an id is a token of the prompt.
                start = self._starts[index] if piece.token_ids else 0
                logprobs = _logprobs(piece.logprobs, start)
            more = CompletionsChoice(
                index=index, text=piece.text, logprobs=logprobs, finish_reason=None
            )
            yield self._chunk(more, piece)

    @override
    def _last(self, index: int, reason: FinishWord) -> CompletionsChoice:
        return CompletionsChoice(index=index, text="", logprobs=None, finish_reason=reason)

    @override
    def _answer(self) -> CompletionsResponse:
        choices = [_joined(deltas) for deltas in self._kept()]
        return CompletionsResponse(**self._identity, choices=choices, **self._totals())


def _first(service: LanguageService, prompt: str | tuple[int, ...]) -> CompletionsLogprobs:
    """The first token of a prompt, which has no probability."""
    ids = service.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    name = service.tokenizer.name(ids[0])
    return CompletionsLogprobs(
        tokens=[name], token_logprobs=[None], top_logprobs=[None], text_offset=[0]
    )


def _logprobs(tokens: tuple[TokenLogprobs, ...], start: int) -> CompletionsLogprobs:
    """The log-probabilities of tokens of a text that begins at character `start`."""
    return CompletionsLogprobs(
        tokens=[_label(token.chosen) for token in tokens],
        token_logprobs=[token.chosen.logprob for token in tokens],
        top_logprobs=[{_label(top): top.logprob for top in token.top} for token in tokens],
        text_offset=[start + token.offset for token in tokens],
    )


def _label(candidate: TokenCandidate) -> str:
    """The token's text; bytes that are not valid UTF-8 alone as OpenAI writes them."""
    try:
        return candidate.bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in candidate.bytes)


def _joined(parts: list[CompletionsChoice]) -> CompletionsChoice:
    logprobs = [part.logprobs for part in parts if part.logprobs]
    joined = {
        name: [entry for part in logprobs for entry in getattr(part, name)]
        for name in CompletionsLogprobs.model_fields
    }
    return CompletionsChoice(
        index=parts[0].index,
        text="".join(part.text for part in parts),
        logprobs=CompletionsLogprobs(**joined) if logprobs else None,
        finish_reason=parts[-1].finish_reason,
    )
