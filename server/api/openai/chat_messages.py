"""A conversation: from OpenAI's chat form to the form of chat templates."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from hearthd.server.api.fields import Fields, Text, encodable_json
from hearthd.server.api.openai.tool_fields import Name
from hearthd.server.errors import InvalidRequest

if TYPE_CHECKING:
    from hearthd.server.text.templates.chat_template import Message


class TextPart(Fields):
    """A part of a message. Images, sound and files are not supported."""

    type: Literal["text"]
    text: Text = Field(description="The text.")


Content = Text | list[TextPart]
_CONTENT = "A text, or a list of texts, which are joined with line breaks."
_AUTHOR = "Name of the author, for chat templates that use it."


class PlainMessage(Fields):
    """A message from the user, the system or the developer."""

    role: Literal["system", "developer", "user"] = Field(
        description="developer is a newer name of system."
    )
    content: Content = Field(description=_CONTENT)
    name: Text = Field(default="", description=_AUTHOR)


class CalledFunction(Fields):
    """A function that the model called."""

    name: Name = Field(description="Name of the function.")
    arguments: Text = Field(description="The arguments, a JSON object as text.")


class ToolCallItem(Fields):
    """A tool call by the model."""

    id: Text = Field(description="Id of the call.")
    type: Literal["function"] = "function"
    function: CalledFunction


class AssistantMessage(Fields):
    """An earlier message from the model."""

    role: Literal["assistant"]
    content: Content = Field(default="", description=_CONTENT)
    name: Text = Field(default="", description=_AUTHOR)
    reasoning_content: Text = Field(
        default="", description="The model's reasoning, for chat templates that use it."
    )
    tool_calls: list[ToolCallItem] = Field(
        default_factory=list, description="Tool calls in the message."
    )


class ToolMessage(Fields):
    """The result of a tool call."""

    role: Literal["tool"]
    content: Content = Field(description=_CONTENT)
    tool_call_id: Text = Field(description="Id of the call in an earlier message.")


ChatMessage = Annotated[PlainMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


def conversation(messages: Sequence[ChatMessage]) -> "list[Message]":
    """The messages in the form of chat templates; raises InvalidRequest.

    Content is one text, arguments are objects, and a tool's result has the tool's name.
    """
    if not messages:  # such as a list of reasoning without a text
        raise InvalidRequest(field="messages", got="none", expected="at least one message")
    names: dict[str, str] = {}
    converted: list[Message] = []
    for place, message in enumerate(messages):
        plain: Message = {"role": message.role, "content": _text(message.content)}
        plain |= message.model_dump(include={"name", "reasoning_content"}, exclude_defaults=True)
        if isinstance(message, AssistantMessage) and message.tool_calls:
            plain["tool_calls"] = _calls(message.tool_calls, f"messages[{place}].tool_calls")
            names |= {call.id: call.function.name for call in message.tool_calls}
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in names:
                raise InvalidRequest(
                    field=f"messages[{place}].tool_call_id",
                    got=message.tool_call_id,
                    expected="the id of a call in an earlier message",
                )
            plain["name"] = names[message.tool_call_id]
            plain["tool_call_id"] = message.tool_call_id
        converted.append(plain)
    return converted


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
            field=field, got=call.function.arguments[:200], expected="a JSON object as text"
        )
    return arguments
