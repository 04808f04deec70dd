"""Texts as vectors, for every route that embeds: lengths of texts and of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.bundle import TEXT_BYTES_PER_TOKEN
from hearthd.server.completions.completer import unit
from hearthd.server.logs import count_tokens
from hearthd.server.services.encoder_service import EncoderService
from hearthd.text.errors import InvalidRequest, TextTooLong

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.server.api.current_service import Embedder
    from hearthd.text.answer import EmbeddedText

MAX_INPUTS = 2048


async def embed_texts(
    prompts: Sequence[tuple[str, str | tuple[int, ...]]], service: Embedder
) -> list[EmbeddedText]:
    """The vectors of texts or token ids with their fields; raises as LanguageService.embed."""
    vectors = await service.embed_all(prompts)
    count_tokens(sum(vector.tokens for vector in vectors))
    return vectors


def vector_width(dimensions: int | None, service: Embedder, field: str = "dimensions") -> int:
    """The width of the vectors that a request asks for; raises InvalidRequest."""
    largest = service.embedding_width
    width = largest if dimensions is None else dimensions
    if width > largest:
        raise InvalidRequest(field=field, got=width, expected=f"1 to {largest}, or null")
    return width


def cut(vector: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """The first `width` values of a vector, scaled to length 1 again."""
    return unit(vector[:width]) if width < len(vector) else vector


def cut_to_context(
    text: str, service: Embedder, max_tokens: int | None = None
) -> str | tuple[int, ...]:
    """The text, or if it is longer than the context, the ids of its start; for any thread.

    The token that the model expects at the end of a text stays. `max_tokens` may be less than the
    context.
    """
    if isinstance(service, EncoderService):
        limit, has_end = service.manifest.context, True
    else:
        limit, has_end = service.context - 1, service.manifest.pooling == "last"
    limit = min(limit, max_tokens or limit)
    start = text.encode()[: limit * TEXT_BYTES_PER_TOKEN].decode(errors="ignore")
    while True:
        try:
            ids = _ids(start, service)
        except TextTooLong:  # it has more tokens than several contexts
            start = start[: len(start) // 2]
        else:
            break
    if len(ids) <= limit:
        return start
    return (*ids[: limit - 1], ids[-1]) if has_end else ids[:limit]


def _ids(text: str, service: Embedder) -> tuple[int, ...]:
    """The ids of a text as the service embeds it; raises TextTooLong."""
    if isinstance(service, EncoderService):
        return service.tokenizer.pair_ids(text)[0]
    if service.manifest.pooling == "last":
        return service.tokenizer.encode_whole(text)
    return service.tokenizer.encode(text)
