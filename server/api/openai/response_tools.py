"""Tools in the form of /v1/responses, and their calls.

The model sees each tool as a function. A custom tool, whose input is any text, is a function with
one argument, and a tool in a namespace is a function with both names. The calls that clients get
have the tool's own form. Tools that run on the server, such as web_search, are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_serializer

from hearthd.server.api.answer_writer import new_id
from hearthd.server.api.fields import Fields, Text, ToolName
from hearthd.server.api.inert_fields import Ignored, or_ignored
from hearthd.server.api.openai.custom_tools import (
    CustomInput,
    CustomText,
    InputGrammar,
    custom_tool,
)
from hearthd.server.api.openai.tool_fields import FlatTool
from hearthd.text.tool_calls.tools import Tool


class CustomGrammar(InputGrammar):
    """A text that a grammar describes."""

    type: Literal["grammar"]


class CustomTool(Fields):
    """A tool whose input is a text. The model sees a function with the argument `input`."""

    type: Literal["custom"]
    name: ToolName = Field(description="Name of the tool: up to 64 letters, digits and `_.-`.")
    description: Text = Field(default="", description="What the tool does, for the model.")
    format: Annotated[CustomText | CustomGrammar, Field(discriminator="type")] | None = Field(
        default=None,
        description="The format of the input; any text by default. A grammar is enforced, and "
        "added to the description for the model.",
    )

    def tool(self, field: str) -> Tool:
        """The tool; `field` is its path in the request."""
        grammar = self.format if isinstance(self.format, CustomGrammar) else None
        return custom_tool(self.name, self.description, grammar, f"{field}.format.definition")


_NamedTool = Annotated[FlatTool | CustomTool, Field(discriminator="type")]


class NamespaceTool(Fields):
    """A group of tools. The model sees each with the name of the group in front of its own."""

    type: Literal["namespace"]
    name: ToolName = Field(description="Name of the group.")
    description: Text = Field(default="", description="Accepted and ignored.")
    tools: list[Annotated[_NamedTool | Ignored, or_ignored(_NamedTool, ("function", "custom"))]] = (
        Field(description="Functions and custom tools.")
    )

    @field_serializer("tools")
    def _without_ignored(self, tools: list[_NamedTool | None]) -> list[dict[str, Any]]:
        return [tool.model_dump() for tool in tools if tool]


_ResponseTool = Annotated[FlatTool | CustomTool | NamespaceTool, Field(discriminator="type")]
ResponseTools = list[
    Annotated[
        _ResponseTool | Ignored, or_ignored(_ResponseTool, ("function", "custom", "namespace"))
    ]
]


def qualified(name: str, namespace: str | None) -> str:
    """The name by which the model knows a tool."""
    if namespace is None:
        return name
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"


class OutputCall(BaseModel):
    """A call of a function by the model."""

    type: Literal["function_call"] = "function_call"
    id: str = Field(description="A unique id of the item.")
    call_id: str = Field(description="Id of the call. The item with the result repeats it.")
    name: str = Field(description="Name of the function.")
    namespace: str | None = Field(default=None, description="The group that the function is in.")
    arguments: str = Field(description="The arguments, a JSON object as text.")
    status: Literal["in_progress", "completed", "incomplete"] = Field(
        description="incomplete: the answer reached its limit within the call."
    )


class OutputCustomCall(BaseModel):
    """A call of a custom tool by the model."""

    type: Literal["custom_tool_call"] = "custom_tool_call"
    id: str = Field(description="A unique id of the item.")
    call_id: str = Field(description="Id of the call. The item with the result repeats it.")
    name: str = Field(description="Name of the tool.")
    namespace: str | None = Field(default=None, description="The group that the tool is in.")
    input: str = Field(description="The input of the tool.")
    status: Literal["in_progress", "completed", "incomplete"] = Field(
        description="incomplete: the answer reached its limit within the call."
    )


@dataclass(frozen=True, kw_only=True)
class OfferedTool:
    """A tool of a request: as the model sees it, and as its calls are reported."""

    tool: Tool
    name: str
    namespace: str | None
    is_custom: bool

    def begin(self) -> OutputCall | OutputCustomCall:
        """The item for a call by the model, without its arguments."""
        named: dict[str, Any] = {
            "call_id": new_id("call_"),
            "name": self.name,
            "namespace": self.namespace,
            "status": "in_progress",
        }
        if self.is_custom:
            return OutputCustomCall(id=new_id("ctc_"), input="", **named)
        return OutputCall(id=new_id("fc_"), arguments="", **named)


class OpenCall:
    """A call by the model while its arguments arrive, which become a part of its item."""

    def __init__(self, tool: OfferedTool) -> None:
        self.item = tool.begin()
        self._input = CustomInput()

    def push(self, arguments: str) -> str:
        """Add arguments; return what that adds to the item."""
        if isinstance(self.item, OutputCall):
            self.item.arguments += arguments
            return arguments
        text = self._input.push(arguments)
        self.item.input += text
        return text

    @property
    def event(self) -> str:
        """The part of the names of its events."""
        is_function = isinstance(self.item, OutputCall)
        return "function_call_arguments" if is_function else "custom_tool_call_input"

    @property
    def done(self) -> dict[str, str]:
        """The fields of the event at the end of the arguments."""
        if isinstance(self.item, OutputCall):
            return {"arguments": self.item.arguments, "name": self.item.name}
        return {"input": self.item.input}


def offered(tools: Sequence[_ResponseTool | None]) -> Mapping[str, OfferedTool]:
    """The tools of a request by the names that the model sees."""
    return {tool.tool.name: tool for tool in _offered(tools, "tools", None)}


def _offered(
    tools: Sequence[_ResponseTool | None], field: str, namespace: str | None
) -> Iterator[OfferedTool]:
    for index, given in enumerate(tools):
        path = f"{field}[{index}]"
        if given is None:
            continue
        if isinstance(given, NamespaceTool):
            yield from _offered(given.tools, f"{path}.tools", given.name)
            continue
        tool = given.tool(path)
        yield OfferedTool(
            tool=replace(tool, name=qualified(given.name, namespace)),
            name=given.name,
            namespace=namespace,
            is_custom=isinstance(given, CustomTool),
        )
