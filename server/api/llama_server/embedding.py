"""POST /embedding: llama-server's route for embeddings."""

from typing import Self

from fastapi import Request
from pydantic import BaseModel, Field, model_validator

from hearthd.server.api.current_service import embedder
from hearthd.server.api.disconnect import unless_disconnected
from hearthd.server.api.fields import ModelFields
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.openai.embedding_inputs import INPUTS, Inputs, embed_all
from hearthd.server.api.surface import surface

router = surface("llama-server", ERRORS, JsonRoute)


class EmbeddingRequest(ModelFields):
    """Texts to embed: `content`, or `input`."""

    content: Inputs | None = Field(None, description=INPUTS)
    input: Inputs | None = Field(None, description="Another name of content.")

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.content is None) == (self.input is None):
            raise ValueError("content or input")
        return self


class EmbeddingAnswer(BaseModel):
    """The vector of one input."""

    index: int = Field(description="Position of the input, from 0.")
    embedding: list[list[float]] = Field(description="A list with the vector, of length 1.")


@router.post("/embedding", summary="Embed texts (llama-server)")
async def embedding(body: EmbeddingRequest, request: Request) -> list[EmbeddingAnswer]:
    """Return a vector for each text, as /v1/embeddings does, in the form of llama-server."""
    service = await embedder(request, body)
    name = "input" if body.content is None else "content"
    texts = getattr(body, name)
    vectors = await unless_disconnected(request, embed_all(texts, name, service))
    return [
        EmbeddingAnswer(index=index, embedding=[vector.vector.tolist()])
        for index, vector in enumerate(vectors)
    ]
