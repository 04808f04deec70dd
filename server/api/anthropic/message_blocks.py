"""A conversation and its tools in Anthropic's form: messages of blocks."""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from hearthd.server.api.fields import Fields, JsonObject, Text
from hearthd.server.api.openai.chat_messages import (
    AssistantMessage,
    CalledFunction,
    ChatMessage,
    PlainMessage,
    TextPart,
    ToolCallItem,
    ToolMessage,
)
from hearthd.server.api.openai.tool_fields import FlatNamedChoice, Name, tool_choice
from hearthd.server.errors import InvalidRequest
from hearthd.server.text.tool_calls.tools import Tool, ToolChoice


class ThinkingBlock(Fields):
    """The model's reasoning in an earlier message, for chat templates that use it."""

    type: Literal["thinking"]
    thinking: Text = Field(description="The reasoning.")
    signature: Text = Field(default="", description="Accepted and ignored.")


class RedactedThinkingBlock(Fields):
    """Reasoning that only Anthropic can read. It is left out."""

    type: Literal["redacted_thinking"]
    data: Text = Field(default="", description="Accepted and ignored.")


class ToolUseBlock(Fields):
    """A tool call by the model."""

    type: Literal["tool_use"]
    id: Text = Field(description="Id of the call.")
    name: Name = Field(description="Name of the tool.")
    input: JsonObject = Field(description="The arguments.")


class ToolResultBlock(Fields):
    """The result of a tool call."""

    type: Literal["tool_result"]
    tool_use_id: Text = Field(description="Id of the call in an earlier message.")
    content: Text | list[TextPart] = Field(
        default="", description="A text, or a list of texts, which are joined with line breaks."
    )
    is_error: bool = Field(
        default=False, description="Accepted and ignored: the content says what went wrong."
    )


Block = Annotated[
    TextPart | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock,
    Field(discriminator="type"),
]


class MessageParam(Fields):
    """A message. Images and documents are not supported."""

    role: Literal["user", "assistant", "system"] = Field(description="The author.")
    content: Text | list[Block] = Field(description="A text, or a list of blocks.")


class ToolParam(Fields):
    """A tool that the model may call."""

    type: Literal["custom"] = Field(
        default="custom", description="Only custom: the server runs no tools."
    )
    name: Name = Field(description="Name of the tool: up to 64 letters, digits and `_.-`.")
    description: Text | None = Field(default=None, description="What the tool does, for the model.")
    input_schema: JsonObject = Field(
        description="A JSON Schema of the arguments, which calls match."
    )
    strict: bool = Field(
        default=False, description="Reject a schema that cannot be enforced completely."
    )


class ToolChoiceParam(Fields):
    """Whether and which tools the model may call."""

    type: Literal["auto", "any", "tool", "none"] = Field(
        description="auto: the model may call tools. any: the answer is one or more calls. tool: "
        "it is a call of the tool `name`. none: the model does not see the tools."
    )
    name: Name | None = Field(default=None, description="With tool: name of the tool.")
    disable_parallel_tool_use: bool = Field(default=False, description="Allow at most one call.")


def messages(system: str | list[TextPart], params: Sequence[MessageParam]) -> list[ChatMessage]:
    """The system text and the messages in the form of OpenAI's chat route.

    Raises InvalidRequest for a block in a message of the wrong role, and for a result without call.
    """
    converted: list[ChatMessage] = []
    if system:
        converted.append(PlainMessage(role="system", content=system))
    calls: set[str] = set()
    for place, message in enumerate(params):
        field = f"messages[{place}]"
        if isinstance(message.content, str):
            blocks: list[Block] = [TextPart(type="text", text=message.content)]
        else:
            blocks = message.content
        if message.role == "assistant":
            answer = _answer(blocks, field)
            calls |= {call.id for call in answer.tool_calls}
            converted.append(answer)
        else:
            converted += _question(message.role, blocks, field, calls)
    return converted


def _answer(blocks: Sequence[Block], field: str) -> AssistantMessage:
    texts: list[TextPart] = []
    reasoning: list[str] = []
    calls: list[ToolCallItem] = []
    for place, block in enumerate(blocks):
        match block:
            case TextPart():
                texts.append(block)
            case ThinkingBlock():
                reasoning.append(block.thinking)
            case ToolUseBlock():
                arguments = json.dumps(block.input, ensure_ascii=False)
                function = CalledFunction(name=block.name, arguments=arguments)
                calls.append(ToolCallItem(id=block.id, function=function))
            case ToolResultBlock():
                raise _misplaced(f"{field}.content[{place}]", block)
    return AssistantMessage(
        role="assistant",
        content=texts,
        reasoning_content="\n".join(reasoning),
        tool_calls=calls,
    )


def _question(
    role: Literal["user", "system"], blocks: Sequence[Block], field: str, calls: set[str]
) -> Iterator[ChatMessage]:
    """Results of tools as messages of their own, and the texts between them."""
    texts: list[TextPart] = []
    for place, block in enumerate(blocks):
        match block:
            case TextPart():
                texts.append(block)
            case ToolResultBlock() if role == "user":
                if block.tool_use_id not in calls:
                    raise InvalidRequest(
                        field=f"{field}.content[{place}].tool_use_id",
                        got=block.tool_use_id,
                        expected="the id of a call in an earlier message",
                    )
                if texts:
                    yield PlainMessage(role=role, content=texts)
                    texts = []
                yield ToolMessage(
                    role="tool", content=block.content, tool_call_id=block.tool_use_id
                )
            case _:
                raise _misplaced(f"{field}.content[{place}]", block)
    if texts:
        yield PlainMessage(role=role, content=texts)


def _misplaced(field: str, block: Any) -> InvalidRequest:
    return InvalidRequest(
        field=f"{field}.type", got=block.type, expected="a block for the role of the message"
    )


def tools(params: Sequence[ToolParam]) -> list[Tool]:
    """The tools of a request."""
    return [
        Tool(
            name=tool.name,
            description=tool.description,
            parameters=json.dumps(tool.input_schema, ensure_ascii=False),
            strict=tool.strict,
            field=f"tools[{place}].input_schema",
        )
        for place, tool in enumerate(params)
    ]


def choice(params: ToolChoiceParam | None, known: Sequence[Tool]) -> ToolChoice:
    """The choice among tools; raises InvalidRequest for a name that is none of theirs."""
    if params is None:
        return ToolChoice()
    parallel = not params.disable_parallel_tool_use
    if params.type == "tool":
        if params.name is None:
            raise InvalidRequest(
                field="tool_choice.name", got=None, expected="the name of a tool with type tool"
            )
        named = FlatNamedChoice(type="function", name=params.name)
        return tool_choice(named, known, parallel=parallel)
    mode = params.type if params.type != "any" else "required"
    return tool_choice(mode, known, parallel=parallel)
