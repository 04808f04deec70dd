"""What OpenAI's routes have in common: fields without an effect, names, usage, logprobs."""

import secrets
import time
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from server.api.fields import Fields, Metadata, Text
from server.api.generation_fields import GenerationFields
from server.api.usage import Usage
from server.services.language_service import LanguageService
from server.text.answer import Candidate, FinishReason, Summary, TokenLogprobs

FinishWord: TypeAlias = Literal["stop", "length", "tool_calls"]


class StreamOptions(Fields):
    """What a stream has besides the answer."""

    include_usage: bool = Field(False, description="End the stream with an event of the usage.")


class OpenAIFields(GenerationFields):
    """Fields of every OpenAI route that generates.

    Those about who asks, for bookkeeping, are taken and have no effect.
    """

    model: Text = Field("", description="Any name is taken: the one model that is served answers.")
    user: Text = Field("", description="No effect.")
    safety_identifier: Text = Field("", description="No effect.")
    prompt_cache_key: Text = Field("", description="No effect: equal prompts are always found.")
    metadata: Metadata = Field(default_factory=dict, description="No effect.")
    service_tier: Literal["auto", "default"] = Field("auto", description="No effect.")
    store: Literal[False] = Field(False, description="Nothing is stored.")


class PromptDetails(BaseModel):
    """Where the prompt's tokens came from."""

    cached_tokens: int


class OpenAIUsage(Usage):
    """Token counts of all choices. The token with which the model ends an answer is not counted."""

    prompt_tokens_details: PromptDetails


def usage(summaries: list[Summary], *, choices: int) -> OpenAIUsage:
    """The usage of a request with so many choices for each prompt, which counts once."""
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
    )


def finish_reason(reason: FinishReason) -> FinishWord:
    """OpenAI's word: an answer that ran out of time is one that is too long."""
    return "length" if reason == "timeout" else reason


def head(service: LanguageService, prefix: str, kind: str) -> dict[str, Any]:
    """The fields by which an answer, and every event of it, is known."""
    return {
        "id": new_id(prefix),
        "object": kind,
        "created": int(time.time()),
        "model": service.name,
        "system_fingerprint": service.fingerprint,
    }


def new_id(prefix: str) -> str:
    """A name that is used once."""
    return f"{prefix}{secrets.token_hex(12)}"


class TokenLogprob(BaseModel):
    """A token's natural logarithm of its probability; `bytes` joined are the answer's UTF-8."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenLogprob(TokenLogprob):
    """The token that came, and the most likely ones in its place, best first."""

    top_logprobs: list[TokenLogprob]


def chosen_logprob(token: TokenLogprobs) -> ChosenLogprob:
    """A token of an answer in OpenAI's form."""
    return ChosenLogprob(
        **dict(token_logprob(token.chosen)),
        top_logprobs=[token_logprob(top) for top in token.top],
    )


def token_logprob(candidate: Candidate) -> TokenLogprob:
    """A candidate in OpenAI's form."""
    return TokenLogprob(
        token=candidate.text, logprob=candidate.logprob, bytes=list(candidate.bytes)
    )
