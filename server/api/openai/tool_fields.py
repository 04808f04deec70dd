"""Tools and the choice among them, as fields of the routes for conversations."""

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from hearthd.server.api.fields import Fields, JsonObject, Text, ToolName
from hearthd.text.tool_calls.tools import ChoiceMode, Tool, ToolChoice

MODES = (
    "auto: the model may call tools. none: the model calls none. required: the answer is one or "
    "more calls."
)


class Function(Fields):
    """A function that the model may call."""

    name: ToolName = Field(description="Name of the function: up to 64 letters, digits and `_.-`.")
    description: Text = Field(default="", description="What the function does, for the model.")
    parameters: JsonObject = Field(
        default_factory=dict,
        description="A JSON Schema of the arguments, which calls match. Without it, the function "
        "has no arguments.",
    )
    strict: bool = Field(
        default=False,
        description="Reject a schema that cannot be enforced completely. Without it, keywords that "
        "are not supported are ignored.",
    )

    def tool(self, field: str) -> Tool:
        """The tool; `field` is the path of the function in the request."""
        return Tool(
            name=self.name,
            description=self.description if "description" in self.model_fields_set else None,
            parameters=json.dumps(self.parameters, ensure_ascii=False)
            if "parameters" in self.model_fields_set
            else None,
            strict=self.strict,
            field=f"{field}.parameters",
        )


class FunctionTool(Fields):
    """A tool that is a function."""

    type: Literal["function"]
    function: Function

    def tool(self, field: str) -> Tool:
        """The tool; `field` is its path in the request."""
        return self.function.tool(f"{field}.function")


class _FunctionType(Fields):
    type: Literal["function"]


class FlatTool(Function, _FunctionType):
    """A function that the model may call."""


class FunctionName(Fields):
    """The name of a function or of a custom tool."""

    name: ToolName = Field(description="Name of the function or tool.")


class NamedChoice(_FunctionType):
    """The function that the model must call, once."""

    function: FunctionName

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.function.name


class CustomChoice(Fields):
    """The custom tool that the model must call, once."""

    type: Literal["custom"]
    custom: FunctionName

    @property
    def name(self) -> str:
        """Name of the tool."""
        return self.custom.name


class AllowedTools(Fields):
    """The tools that the model may or must call."""

    mode: Literal["auto", "required"] = Field(description=MODES)
    tools: list[Annotated[NamedChoice | CustomChoice, Field(discriminator="type")]] = Field(
        min_length=1, description="The tools."
    )


class AllowedChoice(Fields):
    """The tools that the model may or must call, out of all tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def _required(choice: object) -> object:
    return "required" if choice == "any" else choice  # Mistral's word for it


ChatToolChoice = (
    Annotated[ChoiceMode, BeforeValidator(_required)]
    | Annotated[NamedChoice | CustomChoice | AllowedChoice, Field(discriminator="type")]
)


class FlatNamedChoice(FunctionName):
    """The function that the model must call, once."""

    type: Literal["function", "custom"]


class FlatAllowedChoice(Fields):
    """The functions that the model may or must call, out of all tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"] = Field(description=MODES)
    tools: list[FlatNamedChoice] = Field(min_length=1, description="The functions.")


FlatToolChoice = (
    ChoiceMode | Annotated[FlatNamedChoice | FlatAllowedChoice, Field(discriminator="type")]
)


def tool_choice(
    choice: ChatToolChoice | FlatToolChoice, tools: Sequence[Tool], *, parallel: bool
) -> ToolChoice:
    """The choice among tools; raises InvalidRequest for a name that is none of theirs."""
    match choice:
        case NamedChoice() | CustomChoice() | FlatNamedChoice():
            return ToolChoice.among(tools, "required", names=[choice.name], parallel=False)
        case AllowedChoice(allowed_tools=allowed):
            names = [tool.name for tool in allowed.tools]
            return ToolChoice.among(tools, allowed.mode, names=names, parallel=parallel)
        case FlatAllowedChoice():
            names = [tool.name for tool in choice.tools]
            return ToolChoice.among(tools, choice.mode, names=names, parallel=parallel)
        case mode:
            return ToolChoice.among(tools, mode, parallel=parallel)
