"""Documents and search results of plain text in Anthropic's form, which the model reads as text."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from hearthd.server.api.conversations.content import TextPart
from hearthd.server.api.fields import Fields, Text


class Citations(Fields):
    """Whether the answer should cite a document."""

    enabled: Literal[False] = Field(
        default=False, description="Only false: the model's answers have no citations."
    )


class TextSource(Fields):
    """A document as a text."""

    type: Literal["text"]
    media_type: Literal["text/plain"] = Field(default="text/plain", description="The type of it.")
    data: Text = Field(description="The text.")


class ContentSource(Fields):
    """A document as parts of text."""

    type: Literal["content"]
    content: Text | list[TextPart] = Field(description="A text, or a list of texts.")


class DocumentBlock(Fields):
    """A document of plain text. PDF files are not supported."""

    type: Literal["document"]
    source: TextSource | ContentSource = Field(discriminator="type", description="The content.")
    title: Text | None = Field(default=None, description="The title, which the model reads.")
    context: Text | None = Field(default=None, description="More about the document.")
    citations: Citations | None = Field(default=None, description="Accepted if not enabled.")

    @property
    def text(self) -> str:
        """The document for the model."""
        source = self.source
        content = source.data if isinstance(source, TextSource) else source.content
        fields = {"title": self.title, "context": self.context}
        return _tagged("document", fields, content)


class SearchResultBlock(Fields):
    """A result of a search, with its source."""

    type: Literal["search_result"]
    source: Text = Field(description="Where the result is from, such as an address.")
    title: Text = Field(description="The title of the result.")
    content: list[TextPart] = Field(description="The texts of the result.")
    citations: Citations | None = Field(default=None, description="Accepted if not enabled.")

    @property
    def text(self) -> str:
        """The result for the model."""
        fields = {"source": self.source, "title": self.title}
        return _tagged("search_result", fields, self.content)


def _tagged(name: str, fields: Mapping[str, str | None], content: str | Sequence[TextPart]) -> str:
    """The text of a block, with tags around its fields and its content."""
    if not isinstance(content, str):
        content = "\n".join(part.text for part in content)
    head = "".join(f"<{key}>{value}</{key}>\n" for key, value in fields.items() if value)
    return f"<{name}>\n{head}{content}\n</{name}>"


def is_text_document(block: dict[str, Any]) -> bool:
    """Whether a document in a request is a text, and not a PDF file or an address."""
    source = block.get("source")
    return isinstance(source, dict) and source.get("type") in ("text", "content")
