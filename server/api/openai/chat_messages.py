"""A conversation in the form of OpenAI's chat route."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag
from pydantic_core import from_json

from hearthd.server.api.conversations.content import (
    CONTENT,
    Content,
    RefusalPart,
    TextPart,
    Unlisted,
    or_media,
    parts,
)
from hearthd.server.api.fields import Fields, Text, ToolName, encodable_json
from hearthd.text.conversation import EarlierCall, Message, ToolResult
from hearthd.text.errors import InvalidRequest

_AUTHOR = "Name of the author, for chat templates that use it."


class PlainMessage(Fields):
    """A message from the user, the system or the developer."""

    role: Literal["system", "developer", "user"] = Field(
        description="developer is a newer name of system."
    )
    content: Content = Field(description=CONTENT)
    name: Text = Field(default="", description=_AUTHOR)


class CalledFunction(Fields):
    """A function that the model called."""

    name: ToolName = Field(description="Name of the function.")
    arguments: Text = Field(description="The arguments, a JSON object as text.")


class ToolCallItem(Fields):
    """A call of a function by the model."""

    id: Text = Field(description="Id of the call.")
    type: Literal["function"] = "function"
    function: CalledFunction

    def call(self, field: str) -> EarlierCall:
        """The call for the text layer; raises InvalidRequest. `field` is its path."""
        arguments = json_arguments(self.function.arguments, f"{field}.function.arguments")
        return EarlierCall(id=self.id, name=self.function.name, arguments=arguments)


class CalledCustom(Fields):
    """A custom tool that the model called."""

    name: ToolName = Field(description="Name of the tool.")
    input: Text = Field(description="The input of the tool.")


class CustomToolCallItem(Fields):
    """A call of a custom tool by the model."""

    id: Text = Field(description="Id of the call.")
    type: Literal["custom"]
    custom: CalledCustom

    def call(self, _field: str) -> EarlierCall:
        """The call for the text layer."""
        arguments = {"input": self.custom.input}
        return EarlierCall(id=self.id, name=self.custom.name, arguments=arguments)


def _type_of(call: Any) -> str:
    kind = call.get("type") if isinstance(call, dict) else getattr(call, "type", None)
    return "custom" if kind == "custom" else "function"


_ToolCall = Annotated[
    Annotated[ToolCallItem, Tag("function")] | Annotated[CustomToolCallItem, Tag("custom")],
    Discriminator(_type_of),
]


_AnswerText = Annotated[TextPart | RefusalPart, Field(discriminator="type")]
_AnswerPart = Annotated[_AnswerText | Unlisted, or_media(_AnswerText)]


class AssistantMessage(Fields):
    """An earlier message from the model."""

    role: Literal["assistant"]
    content: Text | list[_AnswerPart] = Field(default="", description=CONTENT)
    name: Text = Field(default="", description=_AUTHOR)
    reasoning_content: Text = Field(
        default="", description="The model's reasoning, for chat templates that use it."
    )
    reasoning: Text = Field(
        default="", description="The same as reasoning_content, as Ollama and vLLM call it."
    )
    tool_calls: list[_ToolCall] = Field(
        default_factory=list, description="Tool calls in the message."
    )


class ToolMessage(Fields):
    """The result of a tool call."""

    role: Literal["tool"]
    content: Content = Field(description=CONTENT)
    tool_call_id: Text = Field(description="Id of the call in an earlier message.")
    name: Text = Field(default="", description="Accepted and ignored: the call has the name.")


ChatMessage = Annotated[PlainMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


def messages(wire: Sequence[ChatMessage]) -> list[Message | ToolResult]:
    """The messages for the text layer; raises InvalidRequest."""
    return [_message(message, f"messages[{index}]") for index, message in enumerate(wire)]


def _message(message: ChatMessage, field: str) -> Message | ToolResult:
    content = parts(message.content, f"{field}.content")
    if isinstance(message, ToolMessage):
        return ToolResult(
            call_id=message.tool_call_id, parts=content, field=f"{field}.tool_call_id"
        )
    converted = Message(role=message.role, parts=content, name=message.name)
    if isinstance(message, AssistantMessage):
        converted.reasoning = message.reasoning_content or message.reasoning
        converted.calls = [
            call.call(f"{field}.tool_calls[{index}]")
            for index, call in enumerate(message.tool_calls)
        ]
    return converted


def json_arguments(text: str, field: str) -> dict[str, Any]:
    """The arguments of a call; raises InvalidRequest at `field` unless they are an object.

    Of a call that was cut off, these are the complete members.
    """
    try:
        arguments = encodable_json(_complete_json(text))
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidRequest(field=field, got=text, expected="a JSON object as text")
    return arguments


def _complete_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return from_json(text, allow_partial=True) if text.strip() else {}
