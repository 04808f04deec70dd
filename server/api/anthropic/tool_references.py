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

    def definition(self, tools: Sequence[Tool], field: str) -> str:
        """The definition; raises InvalidRequest. `field` is the path of the block."""
        for tool in tools:
            if tool.name == self.tool_name:
                function = json.dumps(tool.as_template()["function"], ensure_ascii=False)
                return f"<function>{function}</function>"
        raise InvalidRequest(
            field=f"{field}.tool_name",
            got=self.tool_name,
            expected="the name of a tool of the request",
            quotes=True,
        )


_ReadPart = Annotated[
    TextPart | DocumentBlock | SearchResultBlock | ToolReferenceBlock, Field(discriminator="type")
]
ResultContent = Text | list[Annotated[_ReadPart | Unlisted, or_media(_ReadPart, is_text_document)]]
_ResultPart = TextPart | DocumentBlock | SearchResultBlock | ToolReferenceBlock | MediaPart


def result_parts(
    content: str | Sequence[_ResultPart], tools: Sequence[Tool], field: str
) -> list[Part]:
    """The parts of a result for the text layer; raises InvalidRequest. `field` is its path."""
    if isinstance(content, str):
        return [content]
    paths = ((block, f"{field}[{index}]") for index, block in enumerate(content))
    return [
        block.definition(tools, path)
        if isinstance(block, ToolReferenceBlock)
        else part(block, path)
        for block, path in paths
    ]
