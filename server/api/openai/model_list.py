"""GET /v1/models: the served model, in OpenAI's form."""

from collections.abc import Iterable
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from server.api.current_service import CurrentLanguageService
from server.api.http_errors import ERRORS
from server.services.language_service import LanguageService

router = APIRouter(responses=ERRORS, tags=["OpenAI"])


class ModelSize(BaseModel):
    """Sizes of a model, as llama-server reports them."""

    n_vocab: int = Field(description="Number of tokens in the vocabulary.")
    n_ctx: int = Field(description="Size of the context in tokens.")


class ListedModel(BaseModel):
    """A model of this server."""

    id: str = Field(description="Name of the model.")
    object: Literal["model"]
    created: int = Field(description="Unix time when the server opened the model, in seconds.")
    owned_by: str = Field(description="Always hearth.")
    meta: ModelSize = Field(description="A field of llama-server, which OpenAI's API lacks.")


class ModelList(BaseModel):
    """The models of this server."""

    object: Literal["list"]
    data: list[ListedModel] = Field(description="The one model; several in a cluster.")


@router.get("/v1/models", summary="List the models")
async def models(service: CurrentLanguageService) -> ModelList:
    """Return a list with the one model of this server."""
    return listed_models([service])


@router.get("/v1/models/{name}", summary="Get a model")
async def model(name: str, service: CurrentLanguageService) -> ListedModel:
    """Return the model of this server, if it has this name."""
    if name != service.name:
        raise HTTPException(404)
    return _model(service)


def listed_models(services: Iterable[LanguageService]) -> ModelList:
    """The models of these services."""
    return ModelList(object="list", data=[_model(service) for service in services])


def _model(service: LanguageService) -> ListedModel:
    manifest = service.manifest
    return ListedModel(
        id=service.name,
        object="model",
        created=int(service.started),
        owned_by="hearth",
        meta=ModelSize(n_vocab=manifest.vocab_size, n_ctx=manifest.context),
    )
