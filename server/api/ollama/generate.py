"""POST /api/generate: Ollama's route for a prompt, which becomes a conversation of one message."""

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Annotated

from fastapi import Request
from pydantic import ConfigDict, Field

from hearthd.server.api.conversations.turn import begin, rendered
from hearthd.server.api.current_service import language_service
from hearthd.server.api.fields import Text
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.ndjson import LineStream, respond_in_lines
from hearthd.server.api.ollama.answers import (
    Clock,
    GenerateLineWriter,
    OllamaGenerateAnswer,
    stamp,
)
from hearthd.server.api.ollama.error_bodies import ERRORS
from hearthd.server.api.ollama.messages import IMAGES, Images, images_of
from hearthd.server.api.ollama.request_fields import AnswerFields
from hearthd.server.api.ollama.unload import unloaded_name
from hearthd.server.api.openapi import json_lines
from hearthd.server.api.surface import surface
from hearthd.server.completions.choices import Choices
from hearthd.server.services.language_service import LanguageService
from hearthd.text.conversation import Conversation, Message
from hearthd.text.errors import InvalidRequest
from hearthd.text.infill import infill_prompt

router = surface("Ollama", ERRORS, JsonRoute)

_MAX_CONTEXT = 2**20
Ids = tuple[int, ...]


class OllamaGenerateRequest(AnswerFields):
    """A prompt to answer or, with `raw`, to continue."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"prompt": "Say hello.", "options": {"num_predict": 32}, "stream": False}]
        }
    )

    prompt: Text = Field(
        "",
        description="The text. The model reads it in its chat template. Without a prompt the model "
        "is loaded, or with a `keep_alive` of 0 unloaded.",
    )
    suffix: Text = Field(
        "",
        description="Text after the answer, for models whose vocabulary has tokens to fill in the "
        "middle. The chat template is not used.",
    )
    system: Text = Field("", description="A system message before the prompt.")
    raw: bool = Field(False, description="Continue the prompt as it is, without the chat template.")
    context: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=_MAX_CONTEXT)] = Field(
        default_factory=list,
        description="`context` of an earlier answer, which the prompt continues.",
    )
    images: Images = Field(default_factory=list, description=IMAGES)

    def conversation(self) -> Conversation:
        """The prompt as a conversation of one message."""
        system = [Message(role="system", parts=[self.system])] if self.system else []
        prompt = Message(role="user", parts=[*images_of(self.images, "images"), self.prompt])
        return Conversation(messages=[*system, prompt], field="prompt")


@router.post(
    "/api/generate",
    summary="Answer a prompt (Ollama)",
    response_model=OllamaGenerateAnswer,
    response_model_exclude_unset=True,
    responses=json_lines(OllamaGenerateAnswer),
)
async def ollama_generate(
    body: OllamaGenerateRequest, request: Request
) -> OllamaGenerateAnswer | LineStream:
    """Generate the answer to a prompt, in the form of Ollama's API.

    Unless `stream` is false, the answer is a stream of JSON lines, each an OllamaGenerateAnswer.
    """
    clock = Clock()
    if body.unloads and not body.prompt:
        return _empty(await unloaded_name(body, request), "unload")
    service = await language_service(request, body)
    clock.loaded()
    if not (body.prompt or body.suffix):
        return _empty(service.name, "load")
    ids: Sequence[int] | None
    if body.raw or body.suffix or not service.has_template:
        choices, ids = await _continued(service, body)
    else:
        choices, ids = await _answered(request, service, body)
    writer = GenerateLineWriter(
        choices, model=service.name, clock=clock, prompt=None if body.raw else ids
    )
    return await respond_in_lines(writer, request, stream=body.stream)


async def _answered(
    request: Request, service: LanguageService, body: OllamaGenerateRequest
) -> tuple[Choices, Sequence[int] | None]:
    """The answer to a prompt in the chat template, and the ids of a prompt without images."""
    turn, conversation = body.turn(service), body.conversation()
    prompt = await rendered(request, service, turn, conversation)
    bos = service.tokenizer.bos
    new = prompt.ids[1:] if body.context and prompt.ids[:1] == (bos,) else prompt.ids
    prompt = dataclasses.replace(prompt, ids=(*body.context, *new))
    choices = await begin(
        service,
        turn,
        conversation,
        prompt,
        max_tokens=body.max_tokens,
        logprobs=body.alternatives,
    )
    return choices, None if prompt.images else prompt.ids


async def _continued(
    service: LanguageService, body: OllamaGenerateRequest
) -> tuple[Choices, Sequence[int]]:
    """The continuation of a prompt without a template, and the ids of the prompt."""
    for name in ("system", "images", *(["context"] if body.raw or body.suffix else [])):
        if getattr(body, name):
            raise InvalidRequest(
                field=name,
                got=f"{len(getattr(body, name))} characters or items",
                expected="none with raw or suffix, or for a model without a chat template",
            )
    ids = await asyncio.to_thread(_prompt_ids, service, body)
    completion = body.turn(service).completion(
        ids, max_tokens=body.max_tokens, logprobs=body.alternatives
    )
    return await service.complete_all([completion]), ids


def _prompt_ids(service: LanguageService, body: OllamaGenerateRequest) -> Ids:
    tokenizer = service.tokenizer
    if body.suffix:
        return infill_prompt(tokenizer, body.prompt, body.suffix, [])
    ids = tokenizer.encode(body.prompt)
    new = ids[1:] if body.context and ids[:1] == (tokenizer.bos,) else ids
    return (*body.context, *new)


def _empty(model: str, reason: str) -> OllamaGenerateAnswer:
    """The answer to a request without a prompt."""
    return OllamaGenerateAnswer.model_validate(
        {**stamp(model), "response": "", "done": True, "done_reason": reason}
    )
