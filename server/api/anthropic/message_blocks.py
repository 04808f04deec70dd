"""A conversation and its tools in Anthropic's form: messages of blocks."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from hearthd.server.api.anthropic.client_tools import as_custom_tool
from hearthd.server.api.anthropic.document_blocks import (
    DocumentBlock,
    SearchResultBlock,
    is_text_document,
)
from hearthd.server.api.anthropic.tool_references import (
    Definitions,
    ResultContent,
    ToolReferenceBlock,
    result_parts,
)
from hearthd.server.api.conversations.content import (
    CONTENT,
    ContentPart,
    MediaPart,
    TextPart,
    Unlisted,
    or_media,
    part,
    parts,
)
from hearthd.server.api.fields import Fields, JsonObject, Text, ToolName
from hearthd.text.conversation import EarlierCall, Message, Part, ToolResult
from hearthd.text.errors import InvalidRequest
from hearthd.text.tool_calls.tools import Tool, ToolChoice

# Claude Code begins its system text with it. Hashes in it change with each conversation or request:
# `cc_version=2.1.101.e51; cch=a5145;`. Source: https://github.com/ggml-org/llama.cpp/pull/21793.
_BILLING = re.compile(r"x-anthropic-billing-header:(?:[ \t]*\w+=[^;\n]*;?)*\s*")


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
    name: ToolName = Field(description="Name of the tool.")
    input: JsonObject = Field(description="The arguments.")


class ToolResultBlock(Fields):
    """The result of a tool call."""

    type: Literal["tool_result"]
    tool_use_id: Text = Field(description="Id of the call in an earlier message.")
    content: ResultContent = Field(default="", description=CONTENT)
    is_error: bool = Field(
        default=False, description="Accepted and ignored: the content says what went wrong."
    )


_ReadBlock = (
    TextPart
    | DocumentBlock
    | SearchResultBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
)
_TypedBlock = Annotated[_ReadBlock, Field(discriminator="type")]
AnyBlock = _ReadBlock | MediaPart
Block = Annotated[_TypedBlock | Unlisted, or_media(_TypedBlock, is_text_document)]


class MessageParam(Fields):
    """A message. Images and documents that are not plain text are not supported."""

    role: Literal["user", "assistant", "system"] = Field(description="The author.")
    content: Text | list[Block] = Field(description="A text, or a list of blocks.")


class ToolParam(Fields):
    """A tool that the model may call."""

    type: Literal["custom"] = Field(
        default="custom",
        description="custom, or one of the types that Anthropic defines for tools of the client, "
        "such as bash_20250124, text_editor_20250728 and memory_20250818, without a schema. The "
        "server runs no tools.",
    )
    name: ToolName = Field(description="Name of the tool: up to 64 letters, digits and `_.-`.")
    description: Text | None = Field(default=None, description="What the tool does, for the model.")
    input_schema: JsonObject = Field(
        description="A JSON Schema of the arguments, which calls match."
    )
    strict: bool = Field(
        default=False, description="Reject a schema that cannot be enforced completely."
    )
    defer_loading: bool = Field(
        default=False,
        description="The model sees the tool only after the `tool_reference` to it in a result.",
    )

    _with_schema = model_validator(mode="before")(as_custom_tool)


class ToolChoiceParam(Fields):
    """Whether and which tools the model may call."""

    type: Literal["auto", "any", "tool", "none"] = Field(
        description="auto: the model may call tools. any: the answer is one or more calls. tool: "
        "it is a call of the tool `name`. none: the model calls none."
    )
    name: ToolName | None = Field(default=None, description="With tool: name of the tool.")
    disable_parallel_tool_use: bool = Field(default=False, description="Allow at most one call.")


def messages(
    system: str | list[ContentPart], params: Sequence[MessageParam], known: Sequence[Tool]
) -> list[Message | ToolResult]:
    """The system text and the messages for the text layer.

    Raises InvalidRequest for a block in a message of the wrong role, and for a reference to a tool
    that is not `known`.
    """
    converted: list[Message | ToolResult] = []
    definitions = Definitions(known)
    texts = map(_without_billing, parts(system, "system"))
    if instructions := [text for text in texts if text]:
        converted.append(Message(role="system", parts=instructions))
    for index, message in enumerate(params):
        field = f"messages[{index}].content"
        if isinstance(message.content, str):
            converted.append(Message(role=message.role, parts=[message.content]))
        elif message.role == "assistant":
            converted.append(_answer(message.content, field))
        else:
            converted += _question(message.role, message.content, definitions, field)
    return converted


def _without_billing(part: Part) -> Part:
    """A system text without Claude Code's header for billing."""
    if isinstance(part, str) and (header := _BILLING.match(part)):
        return part[header.end() :]
    return part


def _answer(blocks: Sequence[AnyBlock], field: str) -> Message:
    content: list[Part] = []
    reasoning: list[str] = []
    calls: list[EarlierCall] = []
    for index, block in enumerate(blocks):
        path = f"{field}[{index}]"
        match block:
            case TextPart() | DocumentBlock() | SearchResultBlock() | MediaPart():
                content.append(part(block, path))
            case ThinkingBlock():
                reasoning.append(block.thinking)
            case ToolUseBlock():
                calls.append(EarlierCall(id=block.id, name=block.name, arguments=block.input))
            case ToolResultBlock():
                raise _misplaced(path, block)
    return Message(role="assistant", parts=content, reasoning="\n".join(reasoning), calls=calls)


def _question(
    role: Literal["user", "system"],
    blocks: Sequence[AnyBlock],
    definitions: Definitions,
    field: str,
) -> Iterator[Message | ToolResult]:
    """Results of tools as messages of their own, and the texts between them."""
    content: list[Part] = []
    for index, block in enumerate(blocks):
        path = f"{field}[{index}]"
        match block:
            case TextPart() | DocumentBlock() | SearchResultBlock() | MediaPart():
                content.append(part(block, path))
            case ToolResultBlock() if role == "user":
                if content:
                    yield Message(role=role, parts=content)
                    content = []
                yield ToolResult(
                    call_id=block.tool_use_id,
                    parts=result_parts(block.content, definitions, f"{path}.content"),
                    field=f"{path}.tool_use_id",
                )
            case _:
                raise _misplaced(path, block)
    if content:
        yield Message(role=role, parts=content)


def _misplaced(field: str, block: Any) -> InvalidRequest:
    return InvalidRequest(
        field=f"{field}.type", got=block.type, expected="a block for the role of the message"
    )


def referenced(params: Sequence[MessageParam]) -> frozenset[str]:
    """The names of the tools that results refer to."""
    blocks = (block for message in params for block in message.content)
    contents = (block.content for block in blocks if isinstance(block, ToolResultBlock))
    return frozenset(
        part.tool_name
        for content in contents
        for part in content
        if isinstance(part, ToolReferenceBlock)
    )


def tools(params: Sequence[ToolParam | None], names: Collection[str]) -> list[Tool]:
    """The tools of a request. Those that are deferred are left out, unless they are in `names`.

    None is deferred if a tool was ignored: it may be the search that Anthropic's server runs.
    """
    can_defer = None not in params
    return [
        Tool(
            name=tool.name,
            description=tool.description,
            parameters=json.dumps(tool.input_schema, ensure_ascii=False),
            strict=tool.strict,
            is_deferred=can_defer and tool.defer_loading,
            field=f"tools[{index}].input_schema",
        )
        for index, tool in enumerate(params)
        if tool and (tool.name in names or not (can_defer and tool.defer_loading))
    ]


def choice(params: ToolChoiceParam | None, known: Sequence[Tool]) -> ToolChoice:
    """The choice among tools; raises InvalidRequest for a name that is none of theirs."""
    if params is None:
        return ToolChoice()
    if params.type == "tool":
        if params.name is None:
            raise InvalidRequest(
                field="tool_choice.name", got=None, expected="the name of a tool with type tool"
            )
        return ToolChoice.among(known, "required", names=[params.name], parallel=False)
    mode = params.type if params.type != "any" else "required"
    return ToolChoice.among(
        known, mode, sent=params.type, parallel=not params.disable_parallel_tool_use
    )
