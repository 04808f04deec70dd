"""A conversation in the form of Ollama's API.

Its clients often leave out the ids of calls, and send the results of calls in their order, or with
the names of the tools.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from hearthd.server.api.conversations.content import kind_of
from hearthd.server.api.conversations.open_calls import OpenCalls
from hearthd.server.api.fields import Fields, JsonObject, Text, ToolName
from hearthd.text.conversation import EarlierCall, Media, Message, Part, ToolResult
from hearthd.text.errors import InvalidRequest
from hearthd.text.tool_calls.tools import Tool

Images = Annotated[list[Text], Field(max_length=64)]
IMAGES = "Images in base64, and sounds, as Ollama takes them; for a model that reads them."


class OllamaCalledFunction(Fields):
    """A function that the model called."""

    name: ToolName = Field(description="Name of the function.")
    arguments: JsonObject = Field(default_factory=dict, description="The arguments.")
    index: int = Field(0, description="Accepted and ignored: the calls are in order.")


class OllamaEarlierCall(Fields):
    """A tool call by the model."""

    id: Text = Field("", description="Id of the call, if the result repeats it.")
    type: Literal["function"] = "function"
    function: OllamaCalledFunction


def _lower(role: object) -> object:
    return role.lower() if isinstance(role, str) else role


class OllamaMessageParam(Fields):
    """A message."""

    role: Annotated[Literal["system", "user", "assistant", "tool"], BeforeValidator(_lower)] = (
        Field(description="The author.")
    )
    content: Text = Field("", description="The text.")
    thinking: Text = Field(
        "", description="The model's reasoning, for chat templates that use earlier reasoning."
    )
    images: Images = Field(default_factory=list, description=IMAGES)
    tool_calls: list[OllamaEarlierCall] = Field(
        default_factory=list, description="Tool calls in a message from the assistant."
    )
    tool_name: Text = Field("", description="With the role tool: name of the tool.")
    name: Text = Field("", description="Another name of tool_name.")
    tool_call_id: Text = Field(
        "",
        description="With the role tool: id of the call. By default the oldest call without a "
        "result, of the tool `tool_name` if the message has one.",
    )


class OllamaFunction(Fields):
    """A function that the model may call."""

    name: ToolName = Field(description="Name of the function: up to 64 letters, digits and `_.-`.")
    description: Text = Field("", description="What the function does, for the model.")
    parameters: JsonObject = Field(
        default_factory=dict, description="A JSON Schema of the arguments, which calls match."
    )


class OllamaTool(Fields):
    """A tool that the model may call."""

    type: Literal["function"] = "function"
    function: OllamaFunction


def images_of(images: Sequence[str], field: str) -> list[Part]:
    """The images and sounds of a message for the text layer; `field` is their path."""
    return [
        Media(kind=kind_of(image), field=f"{field}[{index}]", url=f"data:;base64,{image}")
        for index, image in enumerate(images)
    ]


def messages(params: Sequence[OllamaMessageParam]) -> list[Message | ToolResult]:
    """The messages for the text layer; raises InvalidRequest for a result without a call."""
    converted: list[Message | ToolResult] = []
    open_calls = OpenCalls()
    for index, message in enumerate(_results_as_texts(params)):
        field = f"messages[{index}]"
        content: list[Part] = [*images_of(message.images, f"{field}.images")]
        content = [*content, message.content] if message.content or not content else content
        if message.role == "tool":
            call = _answered(message, open_calls, field)
            converted.append(ToolResult(call_id=call.id, parts=content, field=f"{field}.content"))
            continue
        calls = [
            open_calls.add(call.function.name, call.function.arguments, call.id)
            for call in message.tool_calls
        ]
        converted.append(
            Message(role=message.role, parts=content, reasoning=message.thinking, calls=calls)
        )
    return converted


def _results_as_texts(params: Sequence[OllamaMessageParam]) -> Sequence[OllamaMessageParam]:
    """The messages; if no call is in them, later results that name none are texts of the user.

    LlamaIndex.TS leaves the calls out.
    """
    if any(message.tool_calls for message in params):
        return params
    return [
        message.model_copy(update={"role": "user"})
        if index and message.role == "tool" and not _names_call(message)
        else message
        for index, message in enumerate(params)
    ]


def _names_call(message: OllamaMessageParam) -> bool:
    return bool(message.tool_name or message.name or message.tool_call_id)


def _answered(message: OllamaMessageParam, open_calls: OpenCalls, field: str) -> EarlierCall:
    """The call that a message has the result of; raises InvalidRequest."""
    name = message.tool_name or message.name
    if call := open_calls.take(name, message.tool_call_id):
        return call
    raise InvalidRequest(
        field=f"{field}.{'tool_name' if name else 'role'}",
        got=name or message.role,
        expected="the result of a call in an earlier message, which has no result yet",
    )


def tools(params: Sequence[OllamaTool | None]) -> list[Tool]:
    """The tools of a request."""
    return [
        Tool(
            name=tool.function.name,
            description=tool.function.description or None,
            parameters=json.dumps(tool.function.parameters, ensure_ascii=False)
            if "parameters" in tool.function.model_fields_set
            else None,
            field=f"tools[{index}].function.parameters",
        )
        for index, tool in enumerate(params)
        if tool
    ]
