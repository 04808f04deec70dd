"""POST /completion and /infill: llama-server's routes for text without a chat template."""

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from pydantic import ConfigDict, Field

from hearthd.server.api.current_service import language_service
from hearthd.server.api.fields import MAX_LOGPROBS, Fields, Text
from hearthd.server.api.generation_fields import GenerationFields
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.llama_server.answers import Answer, CompletionEvent, CompletionWriter
from hearthd.server.api.llama_server.prompts import (
    MAX_PROMPTS,
    GivenPrompt,
    Prompts,
    read_prompts,
)
from hearthd.server.api.openapi import streams
from hearthd.server.api.sse import CompletionStream, respond
from hearthd.server.api.surface import surface
from hearthd.server.services.language_service import LanguageService
from hearthd.text.errors import InvalidRequest
from hearthd.text.infill import SourceFile, infill_prompt
from hearthd.text.tokenizer import Tokenizer

router = surface("llama-server", ERRORS, JsonRoute)
_MAX_PROBABILITIES = 1 << 16  # of an answer, if a token has more than MAX_LOGPROBS


class PredictFields(GenerationFields):
    """The fields of every request in llama-server's form, without its prompt."""

    n_predict: int = Field(
        -1,
        ge=-2,
        description="Maximum number of tokens to generate. -1 and -2 continue to the end of the "
        "context. 0 reads the prompt, for the prefix cache, and generates nothing.",
    )
    max_tokens: int | None = Field(None, ge=-2, description="Another name of n_predict.")
    n_probs: int = Field(
        0,
        ge=0,
        le=_MAX_PROBABILITIES,
        description="Report the probability of each token, and of this many alternatives. 0 "
        f"reports nothing. More than {MAX_LOGPROBS} need an n_predict: the answer reports at most "
        f"{_MAX_PROBABILITIES} alternatives.",
    )
    return_tokens: bool = Field(
        False, description="Return the ids of the answer's tokens. A stream always has them."
    )
    response_fields: list[Text] = Field(
        default_factory=list,
        max_length=64,
        description="Return only these fields, with paths such as generation_settings/seed.",
    )

    @property
    def limit(self) -> int:
        """`n_predict`, by either name."""
        return self.n_predict if self.max_tokens is None else self.max_tokens

    def require_few_probabilities(self) -> None:
        """Raise InvalidRequest if the answer would report too many alternatives."""
        if self.n_probs > MAX_LOGPROBS and not 0 <= self.limit * self.n_probs <= _MAX_PROBABILITIES:
            most = _MAX_PROBABILITIES // self.n_probs
            raise InvalidRequest(
                field="n_probs",
                got=self.n_probs,
                expected=f"at most {MAX_LOGPROBS}, or n_predict from 0 to {most}",
            )

    def settings(self, ends: Sequence[int]) -> dict[str, Any]:
        """The settings of the request, for the answer; `ends` are the ids that end an answer.

        A bias that forbids a token is null, as JSON has no infinity.
        """
        settings = self.model_dump(mode="json", include=set(PredictFields.model_fields))
        biases = [*self.biases(), *((id_, -math.inf) for id_ in ends if self.ignore_eos)]
        shown = [
            {"token": token, "bias": bias if math.isfinite(bias) else None}
            for token, bias in biases
        ]
        return {**settings, "n_predict": self.limit, "logit_bias": shown}


class CompletionRequest(PredictFields):
    """Prompts to continue, as in llama-server."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"prompt": "The capital of France is", "n_predict": 16}]}
    )

    prompt: Prompts = Field(
        description="A text, or an object with it in `prompt_string`, and images and sounds in "
        "`multimodal_data`; a list of token ids and "
        "texts, which is one prompt if it has an id; or a list of up to "
        f"{MAX_PROMPTS} of either.",
    )


class ExtraFile(Fields):
    """Another file of the project."""

    filename: Text = Field(description="Name of the file.")
    text: Text = Field(description="Its content, or a part of it.")


class InfillRequest(PredictFields):
    """A gap to fill in, between two texts."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"input_prefix": "def f(", "input_suffix": "return x\n", "n_predict": 16}]
        }
    )

    input_prefix: Text = Field("", description="The text before the gap.")
    input_suffix: Text = Field("", description="The text after the gap.")
    prompt: Text = Field("", description="More text before the gap, after input_prefix.")
    input_extra: list[ExtraFile] = Field(
        default_factory=list, max_length=64, description="Other files, for context."
    )


@router.post(
    "/completion",
    summary="Continue a prompt (llama-server)",
    response_model=Answer | list[Answer],
    response_model_exclude_unset=True,
    responses=streams(CompletionEvent),
)
async def completion(
    body: CompletionRequest, request: Request
) -> Answer | list[Answer] | CompletionStream:
    """Generate text after one or more prompts, with the fields of llama-server.

    With `stream`, the answer is a stream of server-sent events, each a CompletionEvent; the last
    one of each prompt is a CompletionAnswer without content.
    """
    service = await language_service(request, body)
    return await _answer(body, await read_prompts(body.prompt, service), service, request)


@router.post(
    "/infill",
    summary="Fill the gap between two texts",
    response_model=Answer,
    response_model_exclude_unset=True,
    responses=streams(CompletionEvent),
)
async def infill(body: InfillRequest, request: Request) -> Answer | list[Answer] | CompletionStream:
    """Generate the text of a gap, for models whose vocabulary has tokens to fill in the middle.

    The answer has the form of /completion. It is a 501 if the model lacks these tokens.
    """
    service = await language_service(request, body)
    files = [SourceFile(name=file.filename, text=file.text) for file in body.input_extra]
    before = body.input_prefix + body.prompt
    ids = await asyncio.to_thread(
        infill_prompt, service.tokenizer, before, body.input_suffix, files
    )
    return await _answer(body, [GivenPrompt(ids)], service, request)


async def _answer(
    body: PredictFields, prompts: list[GivenPrompt], service: LanguageService, request: Request
) -> Answer | list[Answer] | CompletionStream:
    body.require_few_probabilities()
    limit = body.limit
    choices = await service.complete_all(
        [
            dataclasses.replace(
                body.completion(
                    prompt.content,
                    max_tokens=None if limit < 0 else max(limit, 1),
                    logprobs=body.n_probs or None,
                ),
                images=prompt.images,
            )
            for prompt in prompts
        ]
    )
    writer = CompletionWriter(
        choices,
        model=service.name,
        prompts=[await asyncio.to_thread(_shown, prompt, service.tokenizer) for prompt in prompts],
        settings=body.settings(service.manifest.special_tokens.eos),
        n_predict=limit,
        after_sampling=body.post_sampling_probs,
        with_tokens=body.return_tokens,
        selected=body.response_fields,
    )
    return await respond(writer, request, stream=body.stream)


def _shown(prompt: GivenPrompt, tokenizer: Tokenizer) -> str:
    """The text of a prompt's tokens; images have none."""
    content = prompt.content
    ids = tokenizer.encode(content) if isinstance(content, str) else content
    return tokenizer.decode([id_ for id_ in ids if id_ >= 0], special=True)
