"""POST /v1/embeddings: texts as vectors.

A vector is the mean of the hidden states of a text's tokens after the model's last norm, or the
last of them, as the model says, scaled to length 1. A model trained for embeddings gives better
ones than one that was trained to continue texts.
"""

import base64
from typing import Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from hearthd.server.api.answer_writer import new_id
from hearthd.server.api.current_service import embedder
from hearthd.server.api.disconnect import unless_disconnected
from hearthd.server.api.embedded_texts import cut, vector_width
from hearthd.server.api.fields import ModelFields
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.openai.embedding_inputs import INPUTS, Inputs, embed_all
from hearthd.server.api.surface import surface
from hearthd.text.answer import EmbeddedText

router = surface("OpenAI", ERRORS, JsonRoute)


class EmbeddingsRequest(ModelFields):
    """Texts to embed."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": ["the dog", "the fox"]}]})

    input: Inputs = Field(description=INPUTS)
    encoding_format: Literal["float", "base64"] = Field(
        "float",
        description="float: lists of numbers. base64: little-endian 32-bit floats, in base64.",
    )
    dimensions: int | None = Field(
        None,
        ge=1,
        description="Only the first values of each vector, scaled to length 1 again: for models "
        "trained for it (Matryoshka). At most the width of the hidden states, the default.",
    )


class EmbeddingItem(BaseModel):
    """The vector of one input."""

    object: Literal["embedding"]
    index: int = Field(description="Position of the input, from 0.")
    embedding: list[float] | str = Field(description="The vector, as in `encoding_format`.")


class EmbeddingsUsage(BaseModel):
    """Token counts of all inputs."""

    prompt_tokens: int = Field(description="Tokens of all inputs.")
    total_tokens: int = Field(description="The same.")


class EmbeddingsResponse(BaseModel):
    """The vectors of the inputs."""

    id: str = Field(description="A unique id of the answer, as in Mistral's API.")
    object: Literal["list"]
    model: str = Field(description="Name of the model.")
    data: list[EmbeddingItem] = Field(description="One vector per input, in the same order.")
    usage: EmbeddingsUsage


@router.post("/v1/embeddings", summary="Embed texts")
async def embeddings(body: EmbeddingsRequest, request: Request) -> EmbeddingsResponse:
    """Return a vector for each text, pooled as the model was trained for, of length 1."""
    service = await embedder(request, body)
    width = vector_width(body.dimensions, service)
    vectors = await unless_disconnected(request, embed_all(body.input, "input", service))
    tokens = sum(embedding.tokens for embedding in vectors)
    return EmbeddingsResponse(
        id=new_id("embd-"),
        object="list",
        model=service.name,
        data=[
            EmbeddingItem(
                object="embedding",
                index=index,
                embedding=_encoded(vector, width, body.encoding_format),
            )
            for index, vector in enumerate(vectors)
        ],
        usage=EmbeddingsUsage(prompt_tokens=tokens, total_tokens=tokens),
    )


def _encoded(
    embedding: EmbeddedText, width: int, encoding: Literal["float", "base64"]
) -> list[float] | str:
    vector = cut(embedding.vector, width)
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    floats: list[float] = vector.tolist()
    return floats
