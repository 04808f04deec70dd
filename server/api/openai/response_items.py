"""A conversation in the form of /v1/responses: a list of items."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from server.api.fields import Fields, Text
from server.api.openai.chat_messages import (
    AssistantMessage,
    CalledFunction,
    ChatMessage,
    PlainMessage,
    ToolCallItem,
    ToolMessage,
)
from server.api.openai.tool_fields import Name

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


Part = Annotated[InputTextPart | OutputTextPart, Field(discriminator="type")]


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
    content: Text | list[Part] = Field(
        description="A text, or a list of texts, which are joined with line breaks."
    )

    def text(self) -> str:
        """The parts as one text."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content)


class CallItem(ItemState):
    """A tool call by the model."""

    type: Literal["function_call"]
    call_id: Text = Field(description="Id of the call.")
    name: Name = Field(description="Name of the function.")
    arguments: Text = Field(description="The arguments, a JSON object as text.")


class CallOutputItem(ItemState):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: Text = Field(description="Id of the call in an earlier item.")
    output: Text = Field(description="The result, as text.")


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


def _with_type(item: Any) -> Any:
    """Add the type of a message that has none."""
    return {"type": "message", **item} if isinstance(item, dict) and "role" in item else item


Item = Annotated[
    MessageItem | ReasoningItem | CallItem | CallOutputItem,
    Field(discriminator="type"),
    BeforeValidator(_with_type),
]


def messages(
    instructions: str, items: Sequence[MessageItem | ReasoningItem | CallItem | CallOutputItem]
) -> list[ChatMessage]:
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
            case CallItem():
                answer = _last_answer(converted, new=bool(reasoning))
                answer.reasoning_content = answer.reasoning_content or reasoning
                answer.tool_calls.append(_call(item))
                reasoning = ""
            case CallOutputItem():
                converted.append(
                    ToolMessage(role="tool", content=item.output, tool_call_id=item.call_id)
                )
    return converted


def _last_answer(converted: list[ChatMessage], *, new: bool) -> AssistantMessage:
    last = converted[-1] if converted else None
    if new or not isinstance(last, AssistantMessage):
        last = AssistantMessage(role="assistant")
        converted.append(last)
    return last


def _call(item: CallItem) -> ToolCallItem:
    function = CalledFunction(name=item.name, arguments=item.arguments)
    return ToolCallItem(id=item.call_id, type="function", function=function)
