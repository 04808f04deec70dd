"""GET /v1/models: what is served, in OpenAI's form."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from server.api.current_service import CurrentLanguageService
from server.api.http_errors import ERRORS
from server.services.language_service import LanguageService

router = APIRouter(responses=ERRORS, tags=["OpenAI"])


class Meta(BaseModel):
    """llama-server's figures: the vocabulary and the context, in tokens."""

    n_vocab: int
    n_ctx: int


class Model(BaseModel):
    """A model that answers; `created` is when the server was started."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    meta: Meta = Field(description="As llama-server has it; OpenAI has no such field.")


class ModelList(BaseModel):
    """All models: there is one."""

    object: Literal["list"]
    data: list[Model]


@router.get("/v1/models")
async def models(service: CurrentLanguageService) -> ModelList:
    """The model that is served, in a list."""
    return ModelList(object="list", data=[_model(service)])


@router.get("/v1/models/{name}")
async def model(name: str, service: CurrentLanguageService) -> Model:
    """The model that is served, by its name."""
    if name != service.name:
        raise HTTPException(404)
    return _model(service)


def _model(service: LanguageService) -> Model:
    manifest = service.manifest
    return Model(
        id=service.name,
        object="model",
        created=int(service.started),
        owned_by="hearth",
        meta=Meta(n_vocab=manifest.vocab_size, n_ctx=manifest.context),
    )
