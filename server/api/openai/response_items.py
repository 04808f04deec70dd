"""A conversation in the form of /v1/responses: a list of items."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from hearthd.server.api.fields import Fields, JsonObject, Text
from hearthd.server.api.inert_fields import without_unknown_types
from hearthd.server.api.openai.chat_messages import (
    AssistantMessage,
    CalledFunction,
    ChatMessage,
    PlainMessage,
    ToolCallItem,
    ToolMessage,
)
from hearthd.server.api.openai.response_tools import qualified
from hearthd.server.api.openai.tool_fields import Name

Status = Literal["in_progress", "completed", "incomplete"]


class InputTextPart(Fields):
    """A text in a message. Images, sound and files are not supported."""

    type: Literal["input_text"]
    text: Text = Field(description="The text.")


class OutputTextPart(Fields):
    """A text in an earlier answer, in the form in which the server sent it."""

    type: Literal["output_text"]
    text: Text = Field(description="The text.")
    annotations: list[Any] = Field(default_factory=list, max_length=0, description="Only empty.")
    logprobs: list[Any] = Field(default_factory=list, description="Accepted and ignored.")


def _only_text(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") in ("input_image", "input_file", "input_audio"):
        raise ValueError("text: the model cannot read images, files and sound")
    return part


Part = Annotated[
    InputTextPart | OutputTextPart, Field(discriminator="type"), BeforeValidator(_only_text)
]
Content = Text | list[Part]
_CONTENT = "A text, or a list of texts, which are joined with line breaks."


def _joined(content: str | list[InputTextPart | OutputTextPart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


class ItemState(Fields):
    """Fields of items that the server has sent."""

    id: Text | None = Field(default=None, description="Accepted and ignored.")
    status: Status | None = Field(default=None, description="Accepted and ignored.")


class MessageItem(ItemState):
    """A message. `type` may be absent."""

    type: Literal["message"]
    role: Literal["system", "developer", "user", "assistant"] = Field(
        description="The author. developer is a newer name of system."
    )
    content: Content = Field(description=_CONTENT)

    def text(self) -> str:
        """The parts as one text."""
        return _joined(self.content)


class CallItem(ItemState):
    """A tool call by the model."""

    type: Literal["function_call"]
    call_id: Text = Field(description="Id of the call.")
    name: Name = Field(description="Name of the function.")
    namespace: Name | None = Field(default=None, description="The group that the function is in.")
    arguments: Text = Field(description="The arguments, a JSON object as text.")

    def function(self) -> CalledFunction:
        """The call as the model wrote it."""
        return _function(qualified(self.name, self.namespace), self.arguments)


class CustomCallItem(ItemState):
    """A call of a custom tool by the model."""

    type: Literal["custom_tool_call"]
    call_id: Text = Field(description="Id of the call.")
    name: Name = Field(description="Name of the tool.")
    namespace: Name | None = Field(default=None, description="The group that the tool is in.")
    input: Text = Field(description="The input of the tool.")

    def function(self) -> CalledFunction:
        """The call as the model wrote it."""
        arguments = json.dumps({"input": self.input}, ensure_ascii=False)
        return _function(qualified(self.name, self.namespace), arguments)


class ShellCallItem(ItemState):
    """A call of the tool local_shell by another model."""

    type: Literal["local_shell_call"]
    call_id: Text = Field(description="Id of the call.")
    action: JsonObject = Field(description="The command.")

    def function(self) -> CalledFunction:
        """The call in the form of a function."""
        return _function("local_shell", json.dumps(self.action, ensure_ascii=False))


def _function(name: str, arguments: str) -> CalledFunction:
    """A call whose name, of two names, may be longer than one in a request."""
    return CalledFunction.model_construct(name=name, arguments=arguments)


class CallOutputItem(ItemState):
    """The result of a tool call."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: Text = Field(description="Id of the call in an earlier item.")
    output: Content = Field(description=f"The result. {_CONTENT}")


class ReasoningPart(Fields):
    """Reasoning, or a summary of it."""

    type: Literal["reasoning_text", "summary_text"]
    text: Text = Field(description="The text.")


class ReasoningItem(ItemState):
    """The reasoning before an earlier answer."""

    type: Literal["reasoning"]
    content: list[ReasoningPart] = Field(default_factory=list, description="The reasoning.")
    summary: list[ReasoningPart] = Field(
        default_factory=list,
        description="A summary, which stands in for reasoning without content.",
    )
    encrypted_content: Text | None = Field(default=None, description="Accepted and ignored.")

    def text(self) -> str:
        """The parts as one text."""
        return "\n".join(part.text for part in self.content or self.summary)


_REFERENCE = "item_reference"


def _with_type(item: Any) -> Any:
    """Add the type of a message that has none, and reject a reference to an item."""
    if isinstance(item, dict) and item.get("type") == _REFERENCE:
        raise ValueError("the item itself, because the server stores no items")
    return {"type": "message", **item} if isinstance(item, dict) and "role" in item else item


_Call = CallItem | CustomCallItem | ShellCallItem
_Item = MessageItem | ReasoningItem | _Call | CallOutputItem
Item = Annotated[_Item, Field(discriminator="type"), BeforeValidator(_with_type)]
_TYPES = frozenset(
    name for item in get_args(_Item) for name in get_args(item.model_fields["type"].annotation)
)
# Items of tools that run on OpenAI's server are left out.
Items = Annotated[
    list[Item],
    Field(min_length=1),
    BeforeValidator(partial(without_unknown_types, known=_TYPES | {_REFERENCE})),
]


def messages(instructions: str, items: Sequence[_Item]) -> list[ChatMessage]:
    """The items as messages; consecutive calls, and the text before them, are one message.

    Reasoning belongs to the message from the assistant that follows it.
    """
    reasoning = ""
    converted: list[ChatMessage] = []
    if instructions:
        converted.append(PlainMessage(role="system", content=instructions))
    for item in items:
        match item:
            case MessageItem(role="assistant"):
                message = AssistantMessage(role="assistant", content=item.text())
                message.reasoning_content, reasoning = reasoning, ""
                converted.append(message)
            case ReasoningItem():
                reasoning = item.text()
            case MessageItem(role="system" | "developer" | "user" as role):
                converted.append(PlainMessage(role=role, content=item.text()))
            case CallItem() | CustomCallItem() | ShellCallItem():
                answer = _last_answer(converted, new=bool(reasoning))
                answer.reasoning_content = answer.reasoning_content or reasoning
                answer.tool_calls.append(_call(item))
                reasoning = ""
            case CallOutputItem():
                output = _joined(item.output)
                converted.append(
                    ToolMessage(role="tool", content=output, tool_call_id=item.call_id)
                )
    return converted


def _last_answer(converted: list[ChatMessage], *, new: bool) -> AssistantMessage:
    last = converted[-1] if converted else None
    if new or not isinstance(last, AssistantMessage):
        last = AssistantMessage(role="assistant")
        converted.append(last)
    return last


def _call(item: _Call) -> ToolCallItem:
    return ToolCallItem(id=item.call_id, type="function", function=item.function())
