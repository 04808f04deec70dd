"""Parts that OpenAI's routes share: request fields, usage, identifiers, log-probabilities."""

import time
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from hearthd.server.api.answer_writer import new_id
from hearthd.server.api.fields import Fields
from hearthd.server.api.usage import Usage
from hearthd.server.services.language_service import LanguageService
from hearthd.text.answer import AnswerSummary, FinishReason, PromptProgress, Timings

FinishWord: TypeAlias = Literal["stop", "length", "tool_calls"]
FINISH_REASONS = (
    "stop: the model ended the answer, or a stop string did. length: the answer reached the "
    "maximum number of tokens, the end of the context or the time limit. tool_calls: the model "
    "called tools."
)


class StreamOptions(Fields):
    """Options of a stream."""

    include_usage: bool = Field(
        False, description="Send the token counts in an event before the end of the stream."
    )


class CompletionDetails(BaseModel):
    """Kinds of the answer's tokens."""

    reasoning_tokens: int = Field(
        description="Tokens of the reasoning, if it is separated from the text."
    )


class PromptDetails(BaseModel):
    """Origin of the prompt's tokens."""

    cached_tokens: int = Field(description="Tokens of the prompt found in the prefix cache.")


class OpenAIUsage(Usage):
    """Token counts of all choices. The token with which the model ends an answer is not counted."""

    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Identity(BaseModel):
    """Fields that identify an answer and each event of its stream."""

    id: str = Field(description="A unique id of the answer.")
    object: str = Field(description="Type of the object.")
    created: int = Field(description="Unix time of the answer's start, in seconds.")
    model: str = Field(description="Name of the model that answers.")
    system_fingerprint: str = Field(
        description="Identifies the bundle by the start of its digest, and one of several programs."
    )
    timings: Timings | None = Field(
        default=None,
        description="Times of the first choice; in a stream of each choice, with its end. A field "
        "of llama-server, which OpenAI's API lacks.",
    )
    prompt_progress: PromptProgress | None = Field(
        default=None, description="In a stream, if the request has `return_progress`."
    )


def usage(summaries: list[AnswerSummary], *, choices: int) -> OpenAIUsage:
    """The usage of a request. A prompt counts once, however many choices it has."""
    prompts = summaries[::choices]
    prompt = sum(summary.prompt_tokens for summary in prompts)
    completion = sum(summary.completion_tokens for summary in summaries)
    return OpenAIUsage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=PromptDetails(
            cached_tokens=sum(summary.cached_tokens for summary in prompts)
        ),
        completion_tokens_details=CompletionDetails(
            reasoning_tokens=sum(summary.reasoning_tokens for summary in summaries)
        ),
    )


def finish_reason(reason: FinishReason) -> FinishWord:
    """OpenAI's word for the reason. Its API has no word for a timeout."""
    return "length" if reason == "timeout" else reason


def identity(service: LanguageService, prefix: str) -> dict[str, Any]:
    """The fields of Identity without `object`; the id begins with `prefix`."""
    return {
        "id": new_id(prefix),
        "created": int(time.time()),
        "model": service.name,
        "system_fingerprint": service.fingerprint,
    }
