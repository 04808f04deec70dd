"""POST /tokenize, /detokenize, /apply-template: llama-server's routes for looking at prompts."""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from server.api.current_service import CurrentLanguageService
from server.api.fields import Fields, JsonObject, Text
from server.api.http_errors import ERRORS
from server.api.openai.messages import ChatMessage, conversation
from server.errors import InvalidRequest
from server.text.tokenizer import Tokenizer

router = APIRouter(responses=ERRORS, tags=["Text"])


class TokenizeBody(Fields):
    """A text to tokenize."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"content": "Hello, world", "with_pieces": True}]}
    )

    content: Text
    add_special: bool = Field(False, description="Put the model's first token (<bos>) in front.")
    parse_special: bool = Field(True, description="Read names of special tokens as those tokens.")
    with_pieces: bool = Field(False, description="Give each token's text with its id.")


class TokenPiece(BaseModel):
    """A token; its text, or its bytes where they are not a text by themselves."""

    id: int
    piece: str | list[int]


class Tokens(BaseModel):
    """The tokens of a text."""

    tokens: list[int] | list[TokenPiece]


class DetokenizeBody(Fields):
    """Token ids to make a text of."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tokens": [9259]}]})

    tokens: list[int]


class Content(BaseModel):
    """The text of tokens; special ones show their names."""

    content: str


class TemplateBody(Fields):
    """A conversation to render."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"messages": [{"role": "user", "content": "Hello"}]}]}
    )

    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[JsonObject] = Field(default_factory=list, description="As the template takes them.")
    add_generation_prompt: bool = Field(True, description="Begin the answer.")


class PromptText(BaseModel):
    """What the model would read."""

    prompt: str


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, service: CurrentLanguageService) -> Tokens:
    """The tokens of a text."""
    tokenizer = service.tokenizer
    ids = tokenizer.read(body.content, special=body.parse_special)
    if body.add_special:
        ids = tokenizer.with_bos(ids)
    if body.with_pieces:
        return Tokens(tokens=[TokenPiece(id=id_, piece=_piece(tokenizer, id_)) for id_ in ids])
    return Tokens(tokens=list(ids))


@router.post("/detokenize")
async def detokenize(body: DetokenizeBody, service: CurrentLanguageService) -> Content:
    """The text of tokens."""
    size = service.manifest.vocab_size
    for place, id_ in enumerate(body.tokens):
        if not 0 <= id_ < size:
            raise InvalidRequest(
                field=f"tokens[{place}]", got=id_, wanted=f"token ids from 0 to {size - 1}"
            )
    return Content(content=service.tokenizer.decode(body.tokens, special=True))


@router.post("/apply-template")
async def apply_template(body: TemplateBody, service: CurrentLanguageService) -> PromptText:
    """The prompt that the bundle's chat template makes of a conversation."""
    prompt = service.template.prompt(
        conversation(body.messages),
        tools=body.tools,
        add_generation_prompt=body.add_generation_prompt,
    )
    return PromptText(prompt=prompt.text)


def _piece(tokenizer: Tokenizer, id_: int) -> str | list[int]:
    piece = tokenizer.bytes_of(id_)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
