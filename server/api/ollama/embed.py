"""POST /api/embed and /api/embeddings: texts as vectors, in the form of Ollama's API."""

import asyncio
from typing import Annotated

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from hearthd.server.api.current_service import Embedder, embedder
from hearthd.server.api.disconnect import unless_disconnected
from hearthd.server.api.embedded_texts import (
    MAX_INPUTS,
    cut,
    cut_to_context,
    embed_texts,
    vector_width,
)
from hearthd.server.api.fields import Text
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.ollama.answers import Clock
from hearthd.server.api.ollama.error_bodies import ERRORS
from hearthd.server.api.ollama.model_names import tagged
from hearthd.server.api.ollama.request_fields import OllamaFields
from hearthd.server.api.surface import surface
from hearthd.text.errors import InvalidRequest

router = surface("Ollama", ERRORS, JsonRoute)

TextList = Annotated[list[Text], Field(max_length=MAX_INPUTS)]


class OllamaEmbedRequest(OllamaFields):
    """Texts to embed."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": ["the dog", "the fox"]}]})

    input: Text | TextList = Field(
        "",
        description=f"A text, or a list of up to {MAX_INPUTS} texts. Without a text the model is "
        "loaded.",
    )
    truncate: bool = Field(
        True, description="Cut texts that are longer than the context. If false, it is an error."
    )
    dimensions: int | None = Field(
        None,
        ge=0,
        description="Only the first values of each vector, scaled to length 1 again: for models "
        "trained for it (Matryoshka). 0 is the default, all of them.",
    )


class OllamaEmbedAnswer(BaseModel):
    """The vectors of the texts."""

    model: str = Field(description="Name of the model.")
    embeddings: list[list[float]] = Field(description="One vector per text, in the same order.")
    total_duration: int = Field(description="Time of the request in nanoseconds.")
    load_duration: int = Field(description="Time until the model was loaded in nanoseconds.")
    prompt_eval_count: int = Field(description="Tokens of all texts.")


class OllamaEmbeddingRequest(OllamaFields):
    """A text to embed."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"prompt": "the dog"}]})

    prompt: Text = Field("", description="The text. Without a text the model is loaded.")


class OllamaEmbeddingAnswer(BaseModel):
    """The vector of a text."""

    embedding: list[float] = Field(description="The vector. Empty without a text.")


@router.post("/api/embed", summary="Embed texts (Ollama)")
async def ollama_embed(body: OllamaEmbedRequest, request: Request) -> OllamaEmbedAnswer:
    """Return a vector for each text, pooled as the model was trained for, of length 1."""
    clock = Clock()
    service = await embedder(request, body)
    clock.loaded()
    texts = [body.input] if isinstance(body.input, str) else body.input
    named = [
        (f"input[{index}]" if isinstance(body.input, list) else "input", text)
        for index, text in enumerate(texts)
        if text or isinstance(body.input, list)
    ]
    vectors, tokens = await unless_disconnected(
        request,
        _vectors(
            service,
            named,
            context=body.options.num_ctx,
            truncate=body.truncate,
            width=body.dimensions,
        ),
    )
    return OllamaEmbedAnswer(
        model=tagged(service.name),
        embeddings=vectors,
        **clock.durations(),
        prompt_eval_count=tokens,
    )


@router.post("/api/embeddings", summary="Embed a text (Ollama)")
async def ollama_embeddings(
    body: OllamaEmbeddingRequest, request: Request
) -> OllamaEmbeddingAnswer:
    """Return the vector of a text: the older form of /api/embed."""
    service = await embedder(request, body)
    named = [("prompt", body.prompt)] if body.prompt else []
    vectors, _ = await unless_disconnected(
        request,
        _vectors(service, named, context=body.options.num_ctx, truncate=True, width=None),
    )
    return OllamaEmbeddingAnswer(embedding=vectors[0] if vectors else [])


async def _vectors(
    service: Embedder,
    named: list[tuple[str, str]],
    *,
    context: int | None,
    truncate: bool,
    width: int | None,
) -> tuple[list[list[float]], int]:
    """The vectors of texts with their fields, and the number of their tokens.

    A text of more than `context` tokens is cut, or without `truncate` an InvalidRequest.
    """
    prompts: list[tuple[str, str | tuple[int, ...]]] = []
    for field, text in named:
        kept: str | tuple[int, ...] = text
        if truncate or context is not None:
            kept = await asyncio.to_thread(cut_to_context, text, service, context)
        if kept != text and not truncate:
            raise InvalidRequest(
                field=field,
                got=f"{len(text)} characters",
                expected=f"a text that is not too long for a num_ctx of {context}",
            )
        prompts.append((field, kept))
    embedded = await embed_texts(prompts, service)
    values = vector_width(width or None, service)
    vectors = [cut(text.vector, values).tolist() for text in embedded]
    return vectors, sum(text.tokens for text in embedded)
