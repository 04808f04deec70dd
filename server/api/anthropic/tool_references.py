"""References to tools with `defer_loading`, which the model sees only where a result names them.

Claude Code lists most of its tools by name alone, and has a tool that finds their definitions.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from hearthd.server.api.anthropic.document_blocks import (
    DocumentBlock,
    SearchResultBlock,
    is_text_document,
)
from hearthd.server.api.conversations.content import (
    MediaPart,
    TextPart,
    Unlisted,
    or_media,
    part,
)
from hearthd.server.api.fields import Fields, Text, ToolName
from hearthd.text.conversation import Part
from hearthd.text.errors import InvalidRequest
from hearthd.text.tool_calls.tools import Tool


class ToolReferenceBlock(Fields):
    """A tool of the request, whose definition the model reads here."""

    type: Literal["tool_reference"]
    tool_name: ToolName = Field(description="Name of the tool.")


class Definitions:
    """The definitions of the tools of a request, in place of the references to them.

    A later reference to a tool is its name: thousands of a long definition would take all memory.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._functions = {tool.name: tool.as_template()["function"] for tool in tools}

    def text(self, name: str, field: str) -> str:
        """The definition, or the name the second time; raises InvalidRequest.

        `field` is the path of the reference.
        """
        if name not in self._functions:
            raise InvalidRequest(
                field=f"{field}.tool_name",
                got=name,
                expected="the name of a tool of the request",
                quotes=True,
            )
        function = self._functions[name]
        self._functions[name] = {"name": name}
        return f"<function>{json.dumps(function, ensure_ascii=False)}</function>"


_ReadPart = Annotated[
    TextPart | DocumentBlock | SearchResultBlock | ToolReferenceBlock, Field(discriminator="type")
]
ResultContent = Text | list[Annotated[_ReadPart | Unlisted, or_media(_ReadPart, is_text_document)]]
_ResultPart = TextPart | DocumentBlock | SearchResultBlock | ToolReferenceBlock | MediaPart


def result_parts(
    content: str | Sequence[_ResultPart], definitions: Definitions, field: str
) -> list[Part]:
    """The parts of a result for the text layer; raises InvalidRequest. `field` is its path."""
    if isinstance(content, str):
        return [content]
    paths = ((block, f"{field}[{index}]") for index, block in enumerate(content))
    return [
        definitions.text(block.tool_name, path)
        if isinstance(block, ToolReferenceBlock)
        else part(block, path)
        for block, path in paths
    ]
