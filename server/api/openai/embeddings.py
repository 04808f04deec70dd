"""POST /v1/embeddings: texts as vectors.

A vector is the mean of the hidden states of a text's tokens after the model's last norm, scaled to
a length of 1. The model was trained to go on with texts and not to compare them: an embedding model
is better at that.
"""

import base64
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from server.api.current_service import CurrentLanguageService
from server.api.disconnect import unless_disconnected
from server.api.fields import Fields, Text, prompts
from server.api.http_errors import ERRORS
from server.errors import InvalidRequest
from server.services.language_service import LanguageService
from server.text.answer import Embedding

router = APIRouter(responses=ERRORS, tags=["OpenAI"])


class EmbeddingsBody(Fields):
    """Texts to embed."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": ["the dog", "the fox"]}]})

    input: Text | list[int] | Annotated[list[Text | list[int]], Field(max_length=2048)] = Field(
        description="A text, or token ids as they are, or a list of texts or of lists of ids."
    )
    model: Text = Field("", description="Any name is taken: the one model that is served answers.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="Numbers, or base64 of them as little-endian 32-bit floats."
    )
    dimensions: int | None = Field(None, ge=1, description="Only the number that the model has.")
    user: Text = Field("", description="No effect.")


class EmbeddingItem(BaseModel):
    """The vector of one input, by its place."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(BaseModel):
    """Numbers of tokens, of all inputs."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """The vectors, in the order of the inputs."""

    object: Literal["list"]
    model: str
    data: list[EmbeddingItem]
    usage: EmbeddingsUsage


@router.post("/v1/embeddings")
async def embeddings(
    body: EmbeddingsBody, service: CurrentLanguageService, request: Request
) -> EmbeddingsAnswer:
    """The mean of each text's hidden states, scaled to a length of 1."""
    if body.dimensions not in (None, service.hidden):
        raise InvalidRequest(
            field="dimensions", got=body.dimensions, wanted=f"{service.hidden} or null"
        )
    found = await unless_disconnected(request, _embedded(body, service))
    tokens = sum(embedding.tokens for embedding in found)
    return EmbeddingsAnswer(
        object="list",
        model=service.name,
        data=[
            EmbeddingItem(
                object="embedding", index=index, embedding=_written(one, body.encoding_format)
            )
            for index, one in enumerate(found)
        ],
        usage=EmbeddingsUsage(prompt_tokens=tokens, total_tokens=tokens),
    )


async def _embedded(body: EmbeddingsBody, service: LanguageService) -> list[Embedding]:
    """One after the other: a long list takes one place in the queue."""
    return [await service.embed(text, field) for field, text in prompts(body.input, "input")]


def _written(embedding: Embedding, form: Literal["float", "base64"]) -> list[float] | str:
    if form == "base64":
        return base64.b64encode(embedding.vector.astype("<f4").tobytes()).decode()
    floats: list[float] = embedding.vector.tolist()
    return floats
