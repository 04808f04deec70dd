"""Tools whose input is a text, which a grammar may describe.

The model sees a function with the argument `input`, and clients get the text alone.
"""

import json
from typing import Literal

from pydantic import Field

from hearthd.server.api.fields import Fields, Text
from hearthd.text.grammars.grammar import Grammar
from hearthd.text.tool_calls.arguments import JsonString, decoded
from hearthd.text.tool_calls.call_format import SPACE, IncompleteText, match
from hearthd.text.tool_calls.tools import Tool

_SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }
)


class CustomText(Fields):
    """Any text."""

    type: Literal["text"]


class InputGrammar(Fields):
    """A grammar of the whole input."""

    syntax: Literal["lark", "regex"] = Field(
        description="lark: a Lark grammar, in which no rule refers to itself. regex: a regular "
        "expression of the whole input."
    )
    definition: Text = Field(description="The grammar.")


def custom_tool(name: str, description: str, grammar: InputGrammar | None, field: str) -> Tool:
    """The function that the model sees; `field` is the path of the grammar in the request."""
    texts = [description] if description else []
    if grammar is not None:
        texts.append(f"The input matches this {grammar.syntax} grammar:\n{grammar.definition}")
    return Tool(
        name=name,
        description="\n\n".join(texts) or None,
        parameters=_SCHEMA,
        input=None if grammar is None else Grammar(grammar.syntax, grammar.definition, field),
        strict=False,
        field=field,
    )


class CustomInput:
    """Reads the text `input` in the arguments of a custom tool, which is their only member."""

    _HEAD = ("{", SPACE, '"input"', SPACE, ":", SPACE, '"')

    def __init__(self) -> None:
        self._held = ""
        self._text: JsonString | None = None

    def push(self, arguments: str) -> str:
        """More of the text, in more of the arguments."""
        self._held += arguments
        if self._text is None:
            try:
                head = match(self._HEAD, self._held)
            except IncompleteText:
                return ""
            if head is None:
                return ""
            self._held, self._text = self._held[head.end :], JsonString()
        held, self._held = self._held, ""
        return "" if self._text.ended else decoded(self._text.push(held))
