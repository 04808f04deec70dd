"""The inputs of the routes for embeddings: texts, token ids, lists of both, objects with a text.

["a text", "another"]       two inputs
[1, 2, "a text", 3]         one input, because a token id is in the list itself
[[1, "a text"], "another"]  two inputs
"""

import asyncio
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from hearthd.server.api.conversations.content import TextPart
from hearthd.server.api.current_service import Embedder
from hearthd.server.api.embedded_texts import MAX_INPUTS, embed_texts
from hearthd.server.api.fields import Fields, Text
from hearthd.text.answer import EmbeddedText
from hearthd.text.errors import InvalidRequest


class TextObject(Fields):
    """A text in one of two forms of llama-server."""

    prompt_string: Text | None = Field(None, description="The text.")
    content: list[TextPart] | None = Field(
        None, min_length=1, description="The text in parts, which are joined."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.prompt_string is None) == (self.content is None):
            raise ValueError("prompt_string or content")
        return self

    def text(self) -> str:
        """The text."""
        return self.prompt_string or "".join(part.text for part in self.content or ())


Ids = list[int | Text]
Input = Text | Ids | TextObject
Inputs = Input | Annotated[list[Input], Field(max_length=MAX_INPUTS)]
INPUTS = (
    "A text, a list of token ids and texts, or a list of up to 2048 of either. A list with a token "
    "id in it is one input."
)


async def embed_all(inputs: Any, name: str, service: Embedder) -> list[EmbeddedText]:
    """The vectors of the Inputs in the field `name`; raises what LanguageService.embed raises."""
    many = isinstance(inputs, list) and inputs and not any(type(entry) is int for entry in inputs)
    named = (
        [(f"{name}[{at}]", entry) for at, entry in enumerate(inputs)] if many else [(name, inputs)]
    )
    if len(named) > MAX_INPUTS:
        raise InvalidRequest(
            field=name, got=f"{len(named)} inputs", expected=f"at most {MAX_INPUTS} inputs"
        )
    prompts = [(path, await _prompt(entry, service)) for path, entry in named]
    return await embed_texts(prompts, service)


async def _prompt(entry: Any, service: Embedder) -> str | tuple[int, ...]:
    match entry:
        case TextObject():
            return entry.text()
        case list():
            return await asyncio.to_thread(service.tokenizer.encode_mixed, entry)
    return str(entry)
