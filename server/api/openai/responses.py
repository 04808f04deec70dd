"""POST /v1/responses: OpenAI's newer surface for conversations. Nothing is stored."""

import json
import time
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field, model_validator

from server.api.current_service import CurrentLanguageService
from server.api.disconnect import unless_disconnected
from server.api.fields import Fields, JsonObject, Text
from server.api.http_errors import ERRORS
from server.api.openai import response_items
from server.api.openai.response_events import Response, ResponseEvent, ResponseWriter
from server.api.openai.response_items import FlatTool, Item, MessageItem
from server.api.openai.shared_fields import OpenAIFields, new_id
from server.api.openai.turn import Turn, begin
from server.api.sse import CompletionStream, streams
from server.errors import InvalidRequest
from server.services.language_service import LanguageService
from server.text.choices import Choices
from server.text.grammar import Grammar

router = APIRouter(responses=ERRORS, tags=["OpenAI"])


class TextFormat(Fields):
    """The model's own words, JSON, or JSON that is valid by `schema`, followed to the letter."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: Text | None = None
    description: Text | None = None
    schema_: JsonObject | None = Field(default=None, alias="schema")
    strict: bool | None = None

    @model_validator(mode="after")
    def _schema_where_it_is_due(self) -> Self:
        if (self.schema_ is not None) != (self.type == "json_schema"):
            raise ValueError("a schema with the type json_schema, and only there")
        return self

    def rules(self) -> Grammar | None:
        """What the answer must be; None for anything."""
        if self.type == "text":
            return None
        if self.schema_ is None:
            return Grammar("json_object", field="text.format")
        schema = json.dumps(self.schema_, ensure_ascii=False)
        return Grammar("json_schema", schema, "text.format.schema")


class TextOptions(Fields):
    """The form of the answer."""

    format: TextFormat = Field(default_factory=TextFormat)


class ResponsesBody(OpenAIFields):
    """A conversation to continue, and how. Sampling has llama-server's names and defaults."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": "Say hello.", "max_output_tokens": 32}]}
    )

    input: Text | Annotated[list[Item], Field(min_length=1)] = Field(
        description="What the user says, or the whole conversation: it has to come every time."
    )
    instructions: Text = Field("", description="A system message in front.")
    max_output_tokens: int | None = Field(
        None, ge=1, description="The most tokens of the answer; else the context ends it."
    )
    text: TextOptions = Field(default_factory=TextOptions)
    tools: list[FlatTool] = Field(
        default_factory=list, description="Functions that the model may call."
    )
    tool_choice: Literal["auto", "none"] = Field(
        "auto", description="With none, the model is not told of the tools."
    )
    parallel_tool_calls: bool = Field(True, description="Whether an answer may have many calls.")
    include: list[Literal["message.output_text.logprobs"]] = Field(default_factory=list)
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="Alternatives to report; only where logprobs are included."
    )
    previous_response_id: None = Field(None, description="There is no response to go on from.")
    background: Literal[False] = False
    truncation: Literal["disabled"] = Field("disabled", description="A long input is refused.")

    def rules(self) -> Grammar | None:
        """What the answer must be, by `text` or as on other routes; raises InvalidRequest."""
        wanted, other = self.text.format.rules(), super().rules()
        if wanted and other:
            raise InvalidRequest(field=other.field, got=other.kind, wanted="none beside text")
        return wanted or other


@router.post("/v1/responses", response_model=Response, responses=streams(ResponseEvent))
async def responses(
    body: ResponsesBody, service: CurrentLanguageService, request: Request
) -> Response | CompletionStream:
    """Answer in a conversation.

    With `stream`, the events are OpenAI's, each with its name, and the last one has the response.
    """
    with_logprobs = bool(body.include)
    if body.top_logprobs is not None and not with_logprobs:
        raise InvalidRequest(
            field="top_logprobs", got=body.top_logprobs, wanted="null without logprobs in include"
        )
    choices = await begin(
        service,
        body,
        _turn(body),
        max_tokens=body.max_output_tokens,
        logprobs=(body.top_logprobs or 0) if with_logprobs else None,
    )
    writer = ResponseWriter(_begun(body, service))
    if body.stream:
        return CompletionStream(choices, writer.events(choices))
    with choices:
        return await unless_disconnected(request, _whole(writer, choices))


def _turn(body: ResponsesBody) -> Turn:
    said = body.input
    items = (
        [MessageItem(type="message", role="user", content=said)] if isinstance(said, str) else said
    )
    return Turn(
        messages=response_items.messages(body.instructions, items),
        tools=[] if body.tool_choice == "none" else [tool.as_chat() for tool in body.tools],
        one_call=not body.parallel_tool_calls,
        field="input",
    )


def _begun(body: ResponsesBody, service: LanguageService) -> Response:
    tools: list[dict[str, Any]] = [tool.model_dump() for tool in body.tools]
    return Response(
        id=new_id("resp_"),
        created_at=int(time.time()),
        instructions=body.instructions or None,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata,
        model=service.name,
        parallel_tool_calls=body.parallel_tool_calls,
        system_fingerprint=service.fingerprint,
        temperature=body.temperature,
        text=body.text.model_dump(by_alias=True, exclude_none=True),
        tool_choice=body.tool_choice,
        tools=tools,
        top_p=body.top_p,
    )


async def _whole(writer: ResponseWriter, choices: Choices) -> Response:
    async for _ in writer.events(choices):
        pass
    return writer.response
