"""A conversation and the tools for it, as OpenAI's chat surface has them, and as templates do."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from server.api.fields import Fields, JsonObject, Text, encodable_json
from server.errors import InvalidRequest

if TYPE_CHECKING:
    from server.text.chat_template import Message, Tool

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class TextPart(Fields):
    """A part of a message. There are no images, no sound and no files."""

    type: Literal["text"]
    text: Text


Content = Text | list[TextPart]


class PlainMessage(Fields):
    """What a person or the application says."""

    role: Literal["system", "developer", "user"]
    content: Content


class CalledFunction(Fields):
    """A call that the model made; `arguments` is the text of a JSON object."""

    name: Name
    arguments: Text


class ToolCallItem(Fields):
    """A call and its id, which the answer to it has too."""

    id: Text
    type: Literal["function"] = "function"
    function: CalledFunction


class AssistantMessage(Fields):
    """What the model said or called before."""

    role: Literal["assistant"]
    content: Content = ""
    tool_calls: list[ToolCallItem] = Field(default_factory=list)


class ToolMessage(Fields):
    """What a tool answered to the call with this id."""

    role: Literal["tool"]
    content: Content
    tool_call_id: Text


ChatMessage = Annotated[PlainMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class Function(Fields):
    """A function that the model may call; `parameters` is a JSON Schema."""

    name: Name
    description: Text = ""
    parameters: JsonObject = Field(default_factory=dict)
    strict: Literal[False] = Field(False, description="Arguments are not held to the schema.")


class FunctionTool(Fields):
    """The only kind of tool there is."""

    type: Literal["function"]
    function: Function

    def as_template(self) -> "Tool":
        """The tool as chat templates take it."""
        return {"type": "function", "function": self.function.model_dump(exclude_unset=True)}


def conversation(messages: Sequence[ChatMessage]) -> "list[Message]":
    """The messages as chat templates take them; raises InvalidRequest.

    Content is one text, arguments are objects, and a tool's answer has the tool's name.
    """
    names: dict[str, str] = {}
    found: list[Message] = []
    for place, message in enumerate(messages):
        plain: Message = {"role": message.role, "content": _text(message.content)}
        if isinstance(message, AssistantMessage) and message.tool_calls:
            plain["tool_calls"] = _calls(message.tool_calls, f"messages[{place}].tool_calls")
            names |= {call.id: call.function.name for call in message.tool_calls}
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in names:
                raise InvalidRequest(
                    field=f"messages[{place}].tool_call_id",
                    got=message.tool_call_id,
                    wanted="the id of a call in a message before",
                )
            plain["name"] = names[message.tool_call_id]
            plain["tool_call_id"] = message.tool_call_id
        found.append(plain)
    return found


def _text(content: str | list[TextPart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def _calls(calls: list[ToolCallItem], field: str) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.function.name,
                "arguments": _arguments(call, f"{field}[{place}].function.arguments"),
            },
        }
        for place, call in enumerate(calls)
    ]


def _arguments(call: ToolCallItem, field: str) -> dict[str, Any]:
    try:
        arguments = encodable_json(json.loads(call.function.arguments))
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidRequest(
            field=field, got=call.function.arguments[:200], wanted="the text of a JSON object"
        )
    return arguments
