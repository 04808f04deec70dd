"""POST /generate: continue a prompt; the answer comes at once or as a stream."""

from collections.abc import Iterable
from typing import Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from hearthd.server.api.answer_writer import AnswerWriter
from hearthd.server.api.current_service import language_service
from hearthd.server.api.fields import Logprobs, MaxTokens, Text
from hearthd.server.api.generation_fields import GenerationFields
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.openapi import streams
from hearthd.server.api.sse import CompletionStream, respond
from hearthd.server.api.surface import surface
from hearthd.server.api.usage import Usage, reports
from hearthd.server.completions.choices import SingleChoice
from hearthd.text.answer import (
    AnswerSummary,
    FinishReason,
    Piece,
    PromptProgress,
    Timings,
    TokenCandidate,
)

router = surface("Generate", ERRORS, JsonRoute)


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
    writer = GenerateWriter(SingleChoice([completion]), with_logprobs=body.logprobs is not None)
    return await respond(writer, request, stream=body.stream)


class GenerateWriter(AnswerWriter[StreamEvent, GenerateResponse]):
    """Writes the events of the only choice; the last one is a GenerateResponse without text."""

    def __init__(self, choices: SingleChoice, *, with_logprobs: bool) -> None:
        super().__init__(choices)
        self._with_logprobs = with_logprobs
        self._kept: list[StreamEvent] = []

    @override
    def _more(self, _index: int, piece: Piece) -> Iterable[StreamEvent]:
        fields: dict[str, Any] = reports(piece)
        if self._with_logprobs:
            fields["logprobs"] = [
                GeneratedToken(
                    **_alternative(token.chosen),
                    top=[Alternative(**_alternative(other)) for other in token.top],
                )
                for token in piece.logprobs
            ]
        yield StreamEvent(text=piece.text, token_ids=list(piece.token_ids), **fields)

    @override
    def _end(self, _index: int, summary: AnswerSummary) -> Iterable[StreamEvent]:
        yield GenerateResponse(
            text="",
            token_ids=[],
            finish_reason=summary.finish_reason,
            usage=Usage(
                prompt_tokens=summary.prompt_tokens,
                completion_tokens=summary.completion_tokens,
                total_tokens=summary.prompt_tokens + summary.completion_tokens,
            ),
            timings=summary.timings,
            seed=summary.seed,
        )

    @override
    def _keep(self, event: StreamEvent) -> None:
        self._kept.append(event)

    @override
    def _answer(self) -> GenerateResponse:
        *events, answer = self._kept
        assert isinstance(answer, GenerateResponse), "the last event is the end of the answer"
        answer.text = "".join(event.text for event in events)
        answer.token_ids = [id_ for event in events for id_ in event.token_ids]
        if self._with_logprobs:
            answer.logprobs = [token for event in events for token in event.logprobs]
        return answer


def _alternative(candidate: TokenCandidate) -> dict[str, Any]:
    return {"id": candidate.id, "text": candidate.text, "logprob": candidate.logprob}
