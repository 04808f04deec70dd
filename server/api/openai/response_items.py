"""A conversation in the form of /v1/responses: a list of items."""

import functools
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from hearthd.server.api.conversations.content import (
    CONTENT,
    RefusalPart,
    Unlisted,
    or_media,
    parts,
)
from hearthd.server.api.fields import Fields, JsonObject, Text, ToolName, encodable_json
from hearthd.server.api.inert_fields import Ignored, ignoring, or_ignored
from hearthd.server.api.openai.chat_messages import json_arguments
from hearthd.server.api.openai.response_tools import qualified
from hearthd.text.conversation import EarlierCall, Message, ToolResult

COMPACTED = "hearth:"  # begins the content of this server's compactions
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


_TextPart = Annotated[InputTextPart | OutputTextPart | RefusalPart, Field(discriminator="type")]
Part = Annotated[_TextPart | Unlisted, or_media(_TextPart)]
Content = Text | list[Part]


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
    content: Content = Field(description=CONTENT)


class CallItem(ItemState):
    """A tool call by the model."""

    type: Literal["function_call"]
    call_id: Text = Field(description="Id of the call.")
    name: ToolName = Field(description="Name of the function.")
    namespace: ToolName | None = Field(
        default=None, description="The group that the function is in."
    )
    arguments: Text = Field(description="The arguments, a JSON object as text.")

    def call(self, field: str) -> EarlierCall:
        """The call for the text layer; raises InvalidRequest. `field` is the path of the item."""
        arguments = json_arguments(self.arguments, f"{field}.arguments")
        return EarlierCall(
            id=self.call_id, name=qualified(self.name, self.namespace), arguments=arguments
        )


class CustomCallItem(ItemState):
    """A call of a custom tool by the model."""

    type: Literal["custom_tool_call"]
    call_id: Text = Field(description="Id of the call.")
    name: ToolName = Field(description="Name of the tool.")
    namespace: ToolName | None = Field(default=None, description="The group that the tool is in.")
    input: Text = Field(description="The input of the tool.")

    def call(self, _field: str) -> EarlierCall:
        """The call for the text layer."""
        name = qualified(self.name, self.namespace)
        return EarlierCall(id=self.call_id, name=name, arguments={"input": self.input})


class ShellCallItem(ItemState):
    """A call of the tool local_shell by another model."""

    type: Literal["local_shell_call"]
    call_id: Text = Field(description="Id of the call.")
    action: JsonObject = Field(description="The command.")

    def call(self, _field: str) -> EarlierCall:
        """The call for the text layer, in the form of a function."""
        return EarlierCall(id=self.call_id, name="local_shell", arguments=self.action)


class CallOutputItem(ItemState):
    """The result of a tool call."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: Text = Field(description="Id of the call in an earlier item.")
    output: Content = Field(description=f"The result. {CONTENT}")


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


class CompactionItem(ItemState):
    """A summary that stands in for earlier items, from /v1/responses/compact of this server."""

    type: Literal["compaction"]
    encrypted_content: Text = Field(
        pattern=f"^{COMPACTED}", description="The summary after `hearth:`. It is not encrypted."
    )

    def message(self) -> Message:
        """The summary for the model. A message from the assistant would be continued."""
        summary = self.encrypted_content.removeprefix(COMPACTED)
        return Message(role="user", parts=[f"Summary of the conversation so far:\n\n{summary}"])


class ItemReference(Fields):
    """A stored item, which stands here. `type` may be absent."""

    type: Literal["item_reference"]
    id: Text = Field(description="Id of the item.")


def _with_type(item: Any) -> Any:
    """Add the type of a message or a reference that has none."""
    if not isinstance(item, dict) or item.get("type") is not None:
        return item
    if "role" in item:
        return {**item, "type": "message"}
    return {**item, "type": "item_reference"} if "id" in item else item


_Call = CallItem | CustomCallItem | ShellCallItem
_Item = MessageItem | ReasoningItem | _Call | CallOutputItem | CompactionItem | ItemReference
_TypedItem = Annotated[_Item, Field(discriminator="type"), BeforeValidator(_with_type)]
_TYPES = frozenset(
    name for item in get_args(_Item) for name in get_args(item.model_fields["type"].annotation)
)


def _is_foreign(item: dict[str, Any]) -> bool:
    """Whether an item is a compaction of another server, which this one cannot read."""
    content = item.get("encrypted_content")
    return item["type"] == "compaction" and not str(content).startswith(COMPACTED)


def _storable(item: Any) -> Any:
    """The item, unchanged: other servers' items are stored and returned as they are."""
    if isinstance(item, dict) and not isinstance(item.get("id"), str | None):
        raise ValueError("an item whose id is a text")
    return encodable_json(item)


# Items of tools that run on OpenAI's server are left out.
AnyItem = Annotated[
    _TypedItem | Ignored, or_ignored(_TypedItem, _TYPES, _is_foreign), BeforeValidator(_storable)
]


def _not_empty(items: list[_Item | None]) -> list[_Item | None]:
    if not any(items):
        raise ValueError("at least 1 item that is not ignored")
    return items


Items = Annotated[list[AnyItem], Field(min_length=1), AfterValidator(_not_empty)]


@functools.cache
def _stored_items() -> TypeAdapter[list[_Item | None]]:
    return TypeAdapter(list[AnyItem])


def read_stored(items: Sequence[dict[str, Any]]) -> list[_Item | None]:
    """Items that the server has stored. A request with an ignored one was told so then."""
    with ignoring():
        return _stored_items().validate_python(items)


def messages(
    instructions: str, items: Iterable[tuple[str, _Item | None]]
) -> list[Message | ToolResult]:
    """The messages for the text layer; raises InvalidRequest. Each item has its path before it.

    Consecutive calls, and the text before them, are one message. Reasoning belongs to the message
    from the assistant that follows it.
    """
    reasoning = ""
    converted: list[Message | ToolResult] = []
    if instructions:
        converted.append(Message(role="system", parts=[instructions]))
    for field, item in items:
        match item:
            case MessageItem():
                message = Message(role=item.role, parts=parts(item.content, f"{field}.content"))
                if item.role == "assistant":
                    message.reasoning, reasoning = reasoning, ""
                converted.append(message)
            case ReasoningItem():
                reasoning = item.text()
            case CallItem() | CustomCallItem() | ShellCallItem():
                answer = _last_answer(converted, new=bool(reasoning))
                answer.reasoning = answer.reasoning or reasoning
                answer.calls.append(item.call(field))
                reasoning = ""
            case CompactionItem():
                converted.append(item.message())
            case CallOutputItem():
                output = parts(item.output, f"{field}.output")
                converted.append(
                    ToolResult(call_id=item.call_id, parts=output, field=f"{field}.call_id")
                )
    return converted


def _last_answer(converted: list[Message | ToolResult], *, new: bool) -> Message:
    last = converted[-1] if converted else None
    if new or not isinstance(last, Message) or last.role != "assistant":
        last = Message(role="assistant")
        converted.append(last)
    return last
