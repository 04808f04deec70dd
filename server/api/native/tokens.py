"""POST /tokenize, /detokenize, /apply-template: llama-server's routes for inspecting prompts."""

import asyncio
import json
from array import array
from collections.abc import Iterator, Sequence

from fastapi import Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from hearthd.bundle import CONTEXTS_PER_TEXT
from hearthd.server.api.conversations.turn_fields import TemplateFields
from hearthd.server.api.current_service import language_service
from hearthd.server.api.fields import JsonObject, ModelFields, Text
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.llama_server.prompts import MediaObject
from hearthd.server.api.openai.chat_messages import ChatMessage, messages
from hearthd.server.api.surface import surface
from hearthd.server.services.language_service import LanguageService
from hearthd.text.conversation import Conversation
from hearthd.text.errors import InvalidRequest
from hearthd.text.tokenizer import Tokenizer

router = surface("Tokens", ERRORS, JsonRoute)

_PART = 1024  # tokens that are written to the answer at once


class TokenizeRequest(ModelFields):
    """A text to tokenize."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"content": "Hello, world", "with_pieces": True}]}
    )

    content: Text | MediaObject = Field(
        description="The text, or an object with it in `prompt_string`, and images and sounds in "
        "`multimodal_data`. Each position of these is a token with the id -1."
    )
    add_special: bool = Field(
        False, description="Add the token that begins a text (<bos>), if the model has one."
    )
    parse_special: bool = Field(
        True,
        description="Read names of special tokens in the text as those tokens. Otherwise they are "
        "plain text.",
    )
    with_pieces: bool = Field(False, description="Return each token's text with its id.")


class TokenPiece(BaseModel):
    """A token and its text."""

    id: int = Field(description="The token id.")
    piece: str | list[int] = Field(
        description="The token's text, or its bytes if they are not valid UTF-8 alone."
    )


class TokenizeResponse(BaseModel):
    """The tokens of a text."""

    tokens: list[int] | list[TokenPiece] = Field(
        description="Token ids, or with `with_pieces` ids and texts."
    )


class DetokenizeRequest(ModelFields):
    """Token ids to decode."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tokens": [9259]}]})

    tokens: list[int] = Field(description="Token ids of the model's vocabulary.")


class DetokenizeResponse(BaseModel):
    """The text of token ids."""

    content: str = Field(description="The text, with the names of special tokens.")


class TemplateRequest(TemplateFields, ModelFields):
    """A conversation to render, as /v1/chat/completions does."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"messages": [{"role": "user", "content": "Hello"}]}]}
    )

    messages: list[ChatMessage] = Field(
        min_length=1, description="The conversation, as in /v1/chat/completions."
    )
    tools: list[JsonObject] = Field(
        default_factory=list, description="Tools, in the form that the chat template expects."
    )


class TemplateResponse(BaseModel):
    """A rendered conversation."""

    prompt: str = Field(description="The text that the model reads.")


@router.post("/tokenize", summary="Tokenize a text", response_model=TokenizeResponse)
async def tokenize(body: TokenizeRequest, request: Request) -> StreamingResponse:
    """Return the token ids of a text, and optionally the text of each token."""
    service = await language_service(request, body)
    tokenizer = service.tokenizer
    ids = await _ids(body, service)
    # A client that reads slowly keeps 4 bytes per token in memory, which count with its body.
    parts = _json(tokenizer, array("i", ids), with_pieces=body.with_pieces)
    return StreamingResponse(parts, media_type="application/json")


@router.post("/detokenize", summary="Decode tokens")
async def detokenize(body: DetokenizeRequest, request: Request) -> DetokenizeResponse:
    """Return the text of token ids."""
    service = await language_service(request, body)
    size, limit = service.manifest.vocab_size, service.context * CONTEXTS_PER_TEXT
    if len(body.tokens) > limit:
        raise InvalidRequest(
            field="tokens", got=f"{len(body.tokens)} tokens", expected=f"at most {limit} tokens"
        )
    for index, id_ in enumerate(body.tokens):
        if not 0 <= id_ < size:
            raise InvalidRequest(
                field=f"tokens[{index}]", got=id_, expected=f"token ids from 0 to {size - 1}"
            )
    return DetokenizeResponse(content=service.tokenizer.decode(body.tokens, special=True))


@router.post("/apply-template", summary="Render a conversation")
async def apply_template(body: TemplateRequest, request: Request) -> TemplateResponse:
    """Return the prompt that the bundle's chat template makes of a conversation."""
    service = await language_service(request, body)
    conversation = Conversation(messages=messages(body.messages))
    prompt = await service.render(
        conversation,
        tools=body.tools,
        variables=body.chat_template_kwargs,
        **body.ending(conversation),
    )
    return TemplateResponse(prompt=prompt.text)


async def _ids(body: TokenizeRequest, service: LanguageService) -> tuple[int, ...]:
    """The tokens of a text, also with images and sounds; raises InvalidRequest or ImagesFull."""
    content, tokenizer = body.content, service.tokenizer
    if isinstance(content, MediaObject):
        if content.multimodal_data:
            if not body.parse_special:
                raise InvalidRequest(
                    field="parse_special",
                    got=False,
                    expected="true for a text with images or sounds",
                )
            media = content.media("content")
            prompt = await service.renderer.render_text(
                content.text(), media, "content.multimodal_data", bos=body.add_special
            )
            return prompt.ids
        content = content.text()
    ids = await asyncio.to_thread(tokenizer.read, content, special=body.parse_special)
    return tokenizer.with_bos(ids) if body.add_special else ids


def _json(tokenizer: Tokenizer, ids: Sequence[int], *, with_pieces: bool) -> Iterator[str]:
    """The text of a TokenizeResponse, in parts: all at once takes 700 bytes per token."""
    write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    yield '{"tokens":['
    for start in range(0, len(ids), _PART):
        chunk = ids[start : start + _PART]
        pieces = ({"id": id_, "piece": _piece(tokenizer, id_)} for id_ in chunk)
        yield "," * (start > 0) + write(list(pieces if with_pieces else chunk))[1:-1]
    yield "]}"


def _piece(tokenizer: Tokenizer, id_: int) -> str | list[int]:
    if id_ < 0:  # a position of an image
        return ""
    piece = tokenizer.bytes_of(id_)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
