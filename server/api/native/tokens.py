"""POST /tokenize, /detokenize, /apply-template: llama-server's routes for inspecting prompts."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from server.api.current_service import CurrentLanguageService
from server.api.fields import JsonObject, ModelFields, Text, limit_members
from server.api.http_errors import ERRORS
from server.api.json_body import JsonRoute
from server.api.openai.chat_messages import ChatMessage, conversation
from server.errors import InvalidRequest
from server.text.tokenizer import Tokenizer

router = APIRouter(route_class=JsonRoute, responses=ERRORS, tags=["Tokens"])


class TokenizeRequest(ModelFields):
    """A text to tokenize."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"content": "Hello, world", "with_pieces": True}]}
    )

    content: Text = Field(description="The text.")
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


class TemplateRequest(ModelFields):
    """A conversation to render."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"messages": [{"role": "user", "content": "Hello"}]}]}
    )

    messages: list[ChatMessage] = Field(
        min_length=1, description="The conversation, as in /v1/chat/completions."
    )
    tools: list[JsonObject] = Field(
        default_factory=list, description="Tools, in the form that the chat template expects."
    )
    add_generation_prompt: bool = Field(
        True, description="End the prompt where the model's next answer begins."
    )
    chat_template_kwargs: Annotated[JsonObject, BeforeValidator(limit_members)] = Field(
        default_factory=dict, description="Variables for the chat template."
    )


class TemplateResponse(BaseModel):
    """A rendered conversation."""

    prompt: str = Field(description="The text that the model reads.")


@router.post("/tokenize", summary="Tokenize a text")
async def tokenize(body: TokenizeRequest, service: CurrentLanguageService) -> TokenizeResponse:
    """Return the token ids of a text, and optionally the text of each token."""
    tokenizer = service.tokenizer
    ids = tokenizer.read(body.content, special=body.parse_special)
    if body.add_special:
        ids = tokenizer.with_bos(ids)
    if body.with_pieces:
        pieces = [TokenPiece(id=id_, piece=_piece(tokenizer, id_)) for id_ in ids]
        return TokenizeResponse(tokens=pieces)
    return TokenizeResponse(tokens=list(ids))


@router.post("/detokenize", summary="Decode tokens")
async def detokenize(
    body: DetokenizeRequest, service: CurrentLanguageService
) -> DetokenizeResponse:
    """Return the text of token ids."""
    size = service.manifest.vocab_size
    for place, id_ in enumerate(body.tokens):
        if not 0 <= id_ < size:
            raise InvalidRequest(
                field=f"tokens[{place}]", got=id_, expected=f"token ids from 0 to {size - 1}"
            )
    return DetokenizeResponse(content=service.tokenizer.decode(body.tokens, special=True))


@router.post("/apply-template", summary="Render a conversation")
async def apply_template(
    body: TemplateRequest, service: CurrentLanguageService
) -> TemplateResponse:
    """Return the prompt that the bundle's chat template makes of a conversation."""
    prompt = service.template.prompt(
        conversation(body.messages),
        tools=body.tools,
        add_generation_prompt=body.add_generation_prompt,
        variables=body.chat_template_kwargs,
    )
    return TemplateResponse(prompt=prompt.text)


def _piece(tokenizer: Tokenizer, id_: int) -> str | list[int]:
    piece = tokenizer.bytes_of(id_)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
