"""GET /api/v0/models: the models, with their state and context, in the form of LM Studio."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from hearthd.bundle import EncoderManifest
from hearthd.server.api.current_service import Pool, served_context
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.ollama.model_list import TextManifest, quantization, text_models
from hearthd.server.api.surface import surface
from hearthd.server.errors import ModelNotFound
from hearthd.server.services.deployment import Deployment

router = surface("LM Studio", ERRORS)


class StudioModel(BaseModel):
    """A model of this server."""

    id: str = Field(description="Name of the model.")
    object: Literal["model"]
    type: Literal["llm", "vlm", "embeddings"] = Field(
        description="llm: a language model. vlm: one that reads images. embeddings: an encoder."
    )
    publisher: str = Field(description="Always hearth.")
    arch: str = Field(description="Name of the architecture, such as gemma3.")
    compatibility_type: str = Field(description="Always hearth.")
    quantization: str = Field(description="As `quantization_level` in /api/tags.")
    state: Literal["loaded", "not-loaded"] = Field(
        description="Whether the model is loaded. A request loads it."
    )
    max_context_length: int = Field(description="Size of the bundle's context in tokens.")
    loaded_context_length: int = Field(
        default=0,
        description="Size of the context that is served, in tokens. Absent if not loaded.",
    )
    capabilities: list[Literal["tool_use"]] = Field(
        description="tool_use: the model has a chat template."
    )


class StudioModelList(BaseModel):
    """The models of this server."""

    object: Literal["list"]
    data: list[StudioModel] = Field(description="The models, the default one first.")


@router.get(
    "/api/v0/models", summary="List the models (LM Studio)", response_model_exclude_unset=True
)
async def studio_models(pool: Pool) -> StudioModelList:
    """Return the language models and encoders of this server, in the form of LM Studio."""
    return StudioModelList(
        object="list",
        data=[_listed(deployment, manifest) for deployment, manifest in text_models(pool)],
    )


@router.get(
    "/api/v0/models/{name:path}",
    summary="Get a model (LM Studio)",
    response_model_exclude_unset=True,
)
async def studio_model(name: str, pool: Pool) -> StudioModel:
    """Return a model of this server, in the form of LM Studio."""
    for deployment, manifest in text_models(pool):
        if deployment.name == name:
            return _listed(deployment, manifest)
    raise ModelNotFound(name, [deployment.name for deployment in pool])


def _listed(deployment: Deployment, manifest: TextManifest) -> StudioModel:
    loaded: dict[str, Any] = {}
    if deployment.current is not None:
        loaded["loaded_context_length"] = served_context(deployment, manifest)
    return StudioModel(
        id=deployment.name,
        object="model",
        type=_type(manifest),
        publisher="hearth",
        arch=manifest.architecture,
        compatibility_type="hearth",
        quantization=quantization(manifest),
        state="not-loaded" if deployment.current is None else "loaded",
        max_context_length=manifest.context,
        **loaded,
        capabilities=["tool_use"] if deployment.has_chat_template else [],
    )


def _type(manifest: TextManifest) -> Literal["llm", "vlm", "embeddings"]:
    if isinstance(manifest, EncoderManifest):
        return "embeddings"
    return "llm" if manifest.image_settings is None else "vlm"
