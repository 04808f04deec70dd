"""Tools of /v1/chat/completions, and their calls: functions, and custom tools with a text."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from hearthd.server.api.answer_writer import new_id
from hearthd.server.api.fields import Fields, Text, ToolName
from hearthd.server.api.inert_fields import Ignored, or_ignored
from hearthd.server.api.openai.custom_tools import (
    CustomInput,
    CustomText,
    InputGrammar,
    custom_tool,
)
from hearthd.server.api.openai.tool_fields import FunctionTool
from hearthd.text.tool_calls.call_format import CallDelta
from hearthd.text.tool_calls.tools import Tool

_CUT_OFF = "With finish_reason length, the last call may be cut off."


class ChatCustomGrammar(Fields):
    """A text that a grammar describes."""

    type: Literal["grammar"]
    grammar: InputGrammar


class ChatCustom(Fields):
    """A tool whose input is a text."""

    name: ToolName = Field(description="Name of the tool: up to 64 letters, digits and `_.-`.")
    description: Text = Field(default="", description="What the tool does, for the model.")
    format: Annotated[CustomText | ChatCustomGrammar, Field(discriminator="type")] | None = Field(
        default=None,
        description="The format of the input; any text by default. A grammar is enforced, and "
        "added to the description for the model.",
    )


class ChatCustomTool(Fields):
    """A custom tool. The model sees a function with the argument `input`."""

    type: Literal["custom"]
    custom: ChatCustom

    def tool(self, field: str) -> Tool:
        """The tool; `field` is its path in the request."""
        given = self.custom
        form = given.format.grammar if isinstance(given.format, ChatCustomGrammar) else None
        path = f"{field}.custom.format.grammar.definition"
        return custom_tool(given.name, given.description, form, path)


_ChatTool = Annotated[FunctionTool | ChatCustomTool, Field(discriminator="type")]
ChatTools = list[Annotated[_ChatTool | Ignored, or_ignored(_ChatTool, ("function", "custom"))]]


def custom_names(tools: Sequence[_ChatTool | None]) -> frozenset[str]:
    """The names of the custom tools among these."""
    return frozenset(tool.custom.name for tool in tools if isinstance(tool, ChatCustomTool))


class ChatFunctionDelta(BaseModel):
    """More of a call of a function."""

    name: str | None = Field(default=None, description="Name of the function, in the first event.")
    arguments: str = Field(description="More of the arguments, a JSON object as text.")


class ChatCustomDelta(BaseModel):
    """More of a call of a custom tool."""

    name: str | None = Field(default=None, description="Name of the tool, in the first event.")
    input: str = Field(description="More of the input.")


class ChatCallDelta(BaseModel):
    """More of a tool call by the model: its name, and then its arguments or its input."""

    index: int = Field(description="Position of the call in the answer, from 0.")
    id: str | None = Field(
        default=None, description="Id of the call, in its first event. The tool message repeats it."
    )
    type: Literal["function", "custom"] = "function"
    function: ChatFunctionDelta | None = Field(default=None, description="Of a function.")
    custom: ChatCustomDelta | None = Field(default=None, description="Of a custom tool.")


class ChatFunctionCall(BaseModel):
    """The function that the model calls."""

    name: str = Field(description="Name of the function.")
    arguments: str = Field(description=f"The arguments, a JSON object as text. {_CUT_OFF}")


class ChatToolCall(BaseModel):
    """A call of a function by the model."""

    id: str = Field(description="Id of the call. The tool message with the result repeats it.")
    type: Literal["function"]
    function: ChatFunctionCall


class ChatCustomCall(BaseModel):
    """The custom tool that the model calls."""

    name: str = Field(description="Name of the tool.")
    input: str = Field(description=f"The input of the tool. {_CUT_OFF}")


class ChatCustomToolCall(BaseModel):
    """A call of a custom tool by the model."""

    id: str = Field(description="Id of the call. The tool message with the result repeats it.")
    type: Literal["custom"]
    custom: ChatCustomCall


class CallDeltas:
    """The deltas of the calls in a choice; `custom` are the names of the custom tools."""

    def __init__(self, custom: Collection[str]) -> None:
        self._custom = custom
        self._inputs = defaultdict[int, CustomInput](CustomInput)

    def delta(self, call: CallDelta) -> ChatCallDelta:
        """The delta for more of a call; its first one has an id and a name."""
        delta = ChatCallDelta(index=call.index)
        if call.name:
            delta.id = new_id("call_")
        if call.name in self._custom or call.index in self._inputs:
            delta.custom = ChatCustomDelta(input=self._inputs[call.index].push(call.arguments))
            if call.name:
                delta.type = "custom"
                delta.custom.name = call.name
            return delta
        delta.function = ChatFunctionDelta(arguments=call.arguments)
        if call.name:
            delta.type = "function"
            delta.function.name = call.name
        return delta


def joined_calls(deltas: Iterable[ChatCallDelta]) -> list[ChatToolCall | ChatCustomToolCall]:
    """The calls that these deltas are parts of."""
    calls: list[ChatToolCall | ChatCustomToolCall] = []
    for delta in deltas:
        if delta.id is not None and delta.custom:
            custom = ChatCustomCall(name=delta.custom.name or "", input="")
            calls.append(ChatCustomToolCall(id=delta.id, type="custom", custom=custom))
        elif delta.id is not None and delta.function:
            function = ChatFunctionCall(name=delta.function.name or "", arguments="")
            calls.append(ChatToolCall(id=delta.id, type="function", function=function))
        call = calls[delta.index]
        if isinstance(call, ChatCustomToolCall):
            call.custom.input += delta.custom.input if delta.custom else ""
        else:
            call.function.arguments += delta.function.arguments if delta.function else ""
    return calls
