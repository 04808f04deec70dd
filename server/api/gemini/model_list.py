"""GET /v1beta/models: the models of the server in Gemini's form."""

import dataclasses
from typing import Annotated

from fastapi import Query
from pydantic import Field

from hearthd.bundle import EncoderManifest
from hearthd.server.api.current_service import Pool, served_context, served_sampling
from hearthd.server.api.gemini.error_bodies import ERRORS
from hearthd.server.api.gemini.gemini_fields import (
    MODEL_PATH,
    MODELS,
    GeminiAnswer,
    ModelPath,
    resource_name,
)
from hearthd.server.api.ollama.model_list import TextManifest, template_source, text_models
from hearthd.server.api.surface import surface
from hearthd.server.errors import ModelNotFound
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.language_service import LanguageService
from hearthd.server.services.model_pool import LATEST
from hearthd.server.version import version
from hearthd.text.errors import InvalidRequest
from hearthd.text.reasoning import reasoning_tags
from hearthd.text.text_request import SamplingParameters

router = surface("Gemini", ERRORS)

_CHATS = ("generateContent", "streamGenerateContent", "countTokens")
_EMBEDS = ("embedContent", "batchEmbedContents")


class GeminiModel(GeminiAnswer):
    """A model of this server."""

    name: str = Field(description="Name of the model after models/.")
    display_name: str = Field(description="Name of the model.")
    description: str = Field(description="Name of the architecture.")
    version: str = Field(description="Version of Hearth.")
    input_token_limit: int = Field(description="Size of the context in tokens.")
    output_token_limit: int = Field(description="Size of the context again.")
    supported_generation_methods: list[str] = Field(
        description="Routes of Gemini's API that the model answers."
    )
    thinking: bool = Field(description="Whether the model reasons before it answers.")
    temperature: float | None = Field(None, description="Default of `temperature`.")
    top_p: float | None = Field(None, description="Default of `topP`.")
    top_k: int | None = Field(None, description="Default of `topK`.")


class GeminiModelList(GeminiAnswer):
    """The models of this server."""

    models: list[GeminiModel] = Field(description="The models, the default one first.")
    next_page_token: str | None = Field(
        None, description="Value of `pageToken` for the models that `pageSize` left out."
    )


PageSize = Annotated[
    int | None,
    Query(alias="pageSize", ge=1, le=1000, description="Maximum number of models. By default all."),
]
PageToken = Annotated[
    str, Query(alias="pageToken", description="`nextPageToken` of an earlier answer.")
]


@router.get(MODELS, summary="List the models (Gemini)", response_model_exclude_unset=True)
async def gemini_models(
    pool: Pool, page_size: PageSize = None, page_token: PageToken = ""
) -> GeminiModelList:
    """Return the language models and encoders of this server, and their LoRA adapters."""
    models = [model for listed in text_models(pool) for model in _listed(*listed)]
    names = [model.name for model in models]
    if page_token and page_token not in names:
        raise InvalidRequest(field="pageToken", got=page_token, expected="a nextPageToken")
    start = names.index(page_token) if page_token else 0
    end = len(models) if page_size is None else start + page_size
    more = {"next_page_token": names[end]} if end < len(models) else {}
    return GeminiModelList(models=models[start:end], **more)


@router.get(MODEL_PATH, summary="Get a model (Gemini)", response_model_exclude_unset=True)
async def gemini_model(model: ModelPath, pool: Pool) -> GeminiModel:
    """Return a model of this server. It need not be loaded."""
    for deployment, manifest in text_models(pool):
        for listed in _listed(deployment, manifest):
            if resource_name(model) in (listed.name, f"{listed.name}:{LATEST}"):
                return listed
    raise ModelNotFound(model, [deployment.name for deployment in pool])


def _listed(deployment: Deployment, manifest: TextManifest) -> list[GeminiModel]:
    """A model, and with each of its adapters."""
    service = deployment.current
    adapters = service.adapters if isinstance(service, LanguageService) else ()
    names = [deployment.name, *(f"{deployment.name}:{adapter.name}" for adapter in adapters)]
    context = served_context(deployment, manifest)
    facts = {
        "description": manifest.architecture,
        "version": version(),
        "input_token_limit": context,
        "output_token_limit": context,
        "supported_generation_methods": _methods(deployment, manifest),
        "thinking": reasoning_tags(template_source(deployment)) is not None,
        **_sampling(deployment, manifest),
    }
    return [
        GeminiModel.model_validate({"name": resource_name(name), "display_name": name, **facts})
        for name in names
    ]


def _methods(deployment: Deployment, manifest: TextManifest) -> list[str]:
    if isinstance(manifest, EncoderManifest):
        return [] if manifest.scores else [*_EMBEDS]
    return [*(_CHATS if deployment.has_chat_template else ()), *_EMBEDS]


def _sampling(deployment: Deployment, manifest: TextManifest) -> dict[str, float]:
    """The defaults of the sampling fields that Gemini's API lists."""
    if isinstance(manifest, EncoderManifest):
        return {}
    sampling = dataclasses.asdict(SamplingParameters()) | served_sampling(deployment, manifest)
    return {name: sampling[name] for name in ("temperature", "top_p", "top_k")}
