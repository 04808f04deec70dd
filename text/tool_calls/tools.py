"""The tools of a request, and which of them the model may or must call."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.text.grammars.grammar import Grammar
    from hearthd.text.tool_calls.call_format import CallFormat


ChoiceMode: TypeAlias = Literal["auto", "none", "required"]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function that the model may call.

    parameters   the JSON Schema of the arguments, as text; None or {} for no arguments
    input        the grammar, a regex or lark, of the text that is the only argument, `input`;
                 None if the schema says everything
    strict       whether a keyword of the schema that cannot be enforced is an error
    is_deferred  whether a message defines the tool for the model, and not the list of tools
    field        path of the schema in the client's request, for errors
    """

    name: str
    description: str | None = None
    parameters: str | None = None
    input: Grammar | None = None
    strict: bool = False
    is_deferred: bool = False
    field: str = "tools"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        if self.input is not None:
            return {"properties": {"input": {"type": "string"}}}
        schema: dict[str, Any] = json.loads(self.parameters or "{}")
        return schema

    def as_template(self) -> dict[str, Any]:
        """The tool in the form of chat templates."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        if self.parameters is not None:
            function["parameters"] = json.loads(self.parameters)
        return {"type": "function", "function": function}


@dataclass(frozen=True, kw_only=True)
class ToolChoice:
    """Which tools the model may call.

    mode       none: the answer is not a call. required: the answer is a call
    allowed    names of the tools that may be called; None for all
    parallel   whether an answer may have more than one call
    """

    mode: ChoiceMode = "auto"
    allowed: frozenset[str] | None = None
    parallel: bool = True

    @staticmethod
    def among(
        tools: Sequence[Tool],
        mode: ChoiceMode,
        *,
        parallel: bool,
        names: Sequence[str] | None = None,
        sent: str | None = None,
        field: str = "tool_choice",
    ) -> ToolChoice:
        """The choice of the tools with these names, or of all; raises InvalidRequest.

        `sent` is the request's word for the mode, if it is another one. `field` is the path of the
        choice in the request.
        """
        if mode == "required" and not tools and names is None:
            raise InvalidRequest(
                field=field, got=sent or mode, expected="auto or none without tools"
            )
        known = {tool.name for tool in tools}
        for name in names or ():
            if name not in known:
                raise InvalidRequest(
                    field=field,
                    got=name,
                    expected=f"the name of a tool: {', '.join(sorted(known)) or 'there are none'}",
                    quotes=True,
                )
        allowed = None if names is None else frozenset(names)
        return ToolChoice(mode=mode, allowed=allowed, parallel=parallel)


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """The tools that an answer may call, and the form in which the model writes calls.

    Without tools the model sees some, and calls none of them.
    """

    format: CallFormat
    tools: tuple[Tool, ...]
    required: bool
    parallel: bool

    def read_as(self, *, any_text: bool) -> CallFormat | None:
        """The form in which an answer is read; None if it is only a text.

        With `any_text`, an answer without calls has no format of its own.
        """
        can_respond = any_text and self.format.response is not None
        return self.format if self.tools or can_respond else None
