"""A conversation and the tools for it, as OpenAI's responses surface has them: a list of items."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from server.api.fields import Fields, Text
from server.api.openai.messages import (
    AssistantMessage,
    CalledFunction,
    ChatMessage,
    Function,
    FunctionTool,
    Name,
    PlainMessage,
    ToolCallItem,
    ToolMessage,
)

Status = Literal["in_progress", "completed", "incomplete"]


class InputText(Fields):
    """A part of what is said. There are no images, no sound and no files."""

    type: Literal["input_text"]
    text: Text


class OutputText(Fields):
    """A part of what the model said; it may be sent back as it came."""

    type: Literal["output_text"]
    text: Text
    annotations: list[Any] = Field(default_factory=list, max_length=0)
    logprobs: list[Any] = Field(default_factory=list, description="No effect.")


Part = Annotated[InputText | OutputText, Field(discriminator="type")]


class MessageItem(Fields):
    """What somebody said."""

    type: Literal["message"]
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[Part]
    id: Text | None = Field(default=None, description="No effect.")
    status: Status | None = Field(default=None, description="No effect.")

    def text(self) -> str:
        """The parts as one text."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content)


class CallItem(Fields):
    """A call that the model made; `arguments` is the text of a JSON object."""

    type: Literal["function_call"]
    call_id: Text
    name: Name
    arguments: Text
    id: Text | None = Field(default=None, description="No effect.")
    status: Status | None = Field(default=None, description="No effect.")


class CallOutputItem(Fields):
    """What a tool answered to the call with this id."""

    type: Literal["function_call_output"]
    call_id: Text
    output: Text
    id: Text | None = Field(default=None, description="No effect.")
    status: Status | None = Field(default=None, description="No effect.")


def _with_type(item: Any) -> Any:
    """A message may come without its type."""
    return {"type": "message", **item} if isinstance(item, dict) and "role" in item else item


Item = Annotated[
    MessageItem | CallItem | CallOutputItem,
    Field(discriminator="type"),
    BeforeValidator(_with_type),
]


class _ToolType(Fields):
    type: Literal["function"]


class FlatTool(Function, _ToolType):
    """A function that the model may call."""

    def as_chat(self) -> FunctionTool:
        """The same in the chat surface's form."""
        fields = self.model_dump(exclude_unset=True, exclude={"type"})
        return FunctionTool(type="function", function=Function(**fields))


def messages(
    instructions: str, items: Sequence[MessageItem | CallItem | CallOutputItem]
) -> list[ChatMessage]:
    """The items as messages; calls in a row, and the words before them, are one message."""
    found: list[ChatMessage] = []
    if instructions:
        found.append(PlainMessage(role="system", content=instructions))
    for item in items:
        match item:
            case MessageItem(role="assistant"):
                found.append(AssistantMessage(role="assistant", content=item.text()))
            case MessageItem(role="system" | "developer" | "user" as role):
                found.append(PlainMessage(role=role, content=item.text()))
            case CallItem():
                _last_answer(found).tool_calls.append(_call(item))
            case CallOutputItem():
                found.append(
                    ToolMessage(role="tool", content=item.output, tool_call_id=item.call_id)
                )
    return found


def _last_answer(found: list[ChatMessage]) -> AssistantMessage:
    last = found[-1] if found else None
    if not isinstance(last, AssistantMessage):
        last = AssistantMessage(role="assistant")
        found.append(last)
    return last


def _call(item: CallItem) -> ToolCallItem:
    function = CalledFunction(name=item.name, arguments=item.arguments)
    return ToolCallItem(id=item.call_id, type="function", function=function)
