"""Gemini's routes for embeddings: embedContent and batchEmbedContents."""

from typing import Annotated, Any

from fastapi import Request
from pydantic import ConfigDict, Field, model_validator

from hearthd.server.api.current_service import embedder
from hearthd.server.api.disconnect import unless_disconnected
from hearthd.server.api.embedded_texts import MAX_INPUTS, cut, embed_texts, vector_width
from hearthd.server.api.fields import with_integers
from hearthd.server.api.gemini import contents as gemini_contents
from hearthd.server.api.gemini.contents import GeminiContent
from hearthd.server.api.gemini.error_bodies import ERRORS
from hearthd.server.api.gemini.gemini_fields import (
    MODEL_PATH,
    GeminiAnswer,
    GeminiModelFields,
    ModelPath,
)
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.surface import surface

router = surface("Gemini", ERRORS, JsonRoute)

_EXAMPLE: dict[str, Any] = {"content": {"parts": [{"text": "the dog"}]}}


class EmbedContentRequest(GeminiModelFields):
    """A text to embed."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    content: GeminiContent = Field(description="The text: parts with texts, a line each.")
    output_dimensionality: int | None = Field(
        None,
        ge=1,
        description="Only the first values of the vector, scaled to length 1 again: for models "
        "trained for it (Matryoshka). At most the width of the hidden states, the default.",
    )

    _with_integers = model_validator(mode="before")(with_integers)


class BatchEmbedRequest(GeminiModelFields):
    """Texts to embed."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"requests": [_EXAMPLE]}]})

    requests: Annotated[list[EmbedContentRequest], Field(max_length=MAX_INPUTS)] = Field(
        description=f"Up to {MAX_INPUTS} texts."
    )


class ContentEmbedding(GeminiAnswer):
    """The vector of a text."""

    values: list[float] = Field(description="The vector.")


class EmbeddingCount(GeminiAnswer):
    """Token counts of all texts."""

    prompt_token_count: int = Field(description="Tokens of all texts.")
    total_token_count: int = Field(description="The same.")


class EmbedContentAnswer(GeminiAnswer):
    """The vector of a text."""

    embedding: ContentEmbedding
    usage_metadata: EmbeddingCount


class BatchEmbedAnswer(GeminiAnswer):
    """The vectors of texts."""

    embeddings: list[ContentEmbedding] = Field(description="One per text, in the same order.")
    usage_metadata: EmbeddingCount


@router.post(f"{MODEL_PATH}:embedContent", summary="Embed a text (Gemini)")
async def embed_content(
    model: ModelPath, body: EmbedContentRequest, request: Request
) -> EmbedContentAnswer:
    """Return a vector for a text, pooled as the model was trained for, of length 1."""
    answer = await _embed(model, [("", body)], body, request)
    return EmbedContentAnswer(embedding=answer.embeddings[0], usage_metadata=answer.usage_metadata)


@router.post(f"{MODEL_PATH}:batchEmbedContents", summary="Embed texts (Gemini)")
async def batch_embed_contents(
    model: ModelPath, body: BatchEmbedRequest, request: Request
) -> BatchEmbedAnswer:
    """Return a vector for each text, pooled as the model was trained for, of length 1."""
    named = [(f"requests[{index}].", text) for index, text in enumerate(body.requests)]
    return await _embed(model, named, body, request)


async def _embed(
    model: str,
    named: list[tuple[str, EmbedContentRequest]],
    body: GeminiModelFields,
    request: Request,
) -> BatchEmbedAnswer:
    """The vectors of requests, each with the path of its fields."""
    service = await embedder(request, body.of(model))
    prompts = [
        (f"{path}content", gemini_contents.text(text.content, f"{path}content"))
        for path, text in named
    ]
    widths = [
        vector_width(text.output_dimensionality, service, f"{path}outputDimensionality")
        for path, text in named
    ]
    vectors = await unless_disconnected(request, embed_texts(prompts, service))
    tokens = sum(vector.tokens for vector in vectors)
    return BatchEmbedAnswer(
        embeddings=[
            ContentEmbedding(values=cut(text.vector, width).tolist())
            for text, width in zip(vectors, widths, strict=True)
        ],
        usage_metadata=EmbeddingCount(prompt_token_count=tokens, total_token_count=tokens),
    )
