"""GET /v1/models: the models of the server, with the fields of OpenAI, llama-server and Anthropic.

The names of their fields differ, so one body is for the clients of all three.
"""

import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Query, Request
from pydantic import BaseModel, Field

from hearthd.bundle import ArraysManifest, EncoderManifest, LanguageManifest, SpeechManifest
from hearthd.server.api.anthropic.error_bodies import VERSION_HEADER
from hearthd.server.api.anthropic.model_facts import (
    AnthropicCapabilities,
    ModelFacts,
    capabilities,
)
from hearthd.server.api.current_service import Pool, served_context, served_sampling
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.surface import surface
from hearthd.server.errors import ModelNotFound
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.language_service import LanguageService
from hearthd.server.services.model_pool import LATEST, ModelPool
from hearthd.text.errors import InvalidRequest

router = surface("OpenAI", ERRORS)


class ModelSize(BaseModel):
    """Sizes of a model, as llama-server reports them."""

    n_vocab: int = Field(description="Number of tokens in the vocabulary.")
    n_ctx: int = Field(description="Size of the context in tokens.")
    sound_seconds: float | None = Field(
        None, description="Seconds of the longest sound that the model reads."
    )
    sampling: dict[str, Any] = Field(
        description="Defaults of sampling fields that differ from the API's."
    )


class ModelStatus(BaseModel):
    """Whether a model is loaded. A request to a model that is not loaded loads it."""

    value: Literal["loaded", "loading", "unloaded"] = Field(
        description="loaded: the model answers requests. loading: it is being loaded and tested, "
        "or waits for its turn."
    )
    failed: bool = Field(False, description="Present if the last attempt to load the model failed.")
    error: str = Field("", description="Present with `failed`: the reason.")
    pinned: bool = Field(description="Whether the model stays loaded.")
    memory: int = Field(
        description="Bytes that the loaded model takes at most, without the process."
    )
    requests: int = Field(description="Number of requests that use the model.")
    idle_seconds: float | None = Field(
        description="Seconds since the last request to the loaded model."
    )


class Architecture(BaseModel):
    """What a model reads and writes, as llama-server reports it."""

    input_modalities: list[Literal["text", "image", "audio"]] = Field(
        description="What the model reads."
    )
    output_modalities: list[Literal["text"]] = Field(description="What the model writes.")


Capability: TypeAlias = Literal[
    "completion", "chat", "vision", "audio", "embedding", "rerank", "transcription", "arrays"
]


class ListedModel(ModelFacts):
    """A model of this server."""

    id: str = Field(description="Name of the model.")
    object: Literal["model"]
    created: int = Field(description="Unix time when the server opened the model, in seconds.")
    owned_by: str = Field(description="Always hearth.")
    display_name: str = Field(description="A field of Anthropic's API: the name again.")
    created_at: str = Field(description="A field of Anthropic's API: `created` as RFC 3339 text.")
    aliases: list[str] = Field(description="The names in --alias.")
    tags: list[str] = Field(description="The tags in --tags.")
    meta: ModelSize | None = Field(
        description="A field of llama-server, which OpenAI's API lacks. null for array functions."
    )
    capabilities: list[Capability] | AnthropicCapabilities = Field(
        [],
        description="What the model can do, also while it is not loaded. chat: it has a chat "
        "template. vision: it reads images. audio: it reads sound. transcription: it transcribes "
        "speech. arrays: it answers /run. Absent if its bundle could not be read. An object of "
        "Anthropic's API for a request with its header anthropic-version.",
    )
    architecture: Architecture | None = Field(
        None,
        description="A field of llama-server, which OpenAI's API lacks. Absent for models that "
        "generate no text.",
    )
    status: ModelStatus = Field(description="A field of llama-server, which OpenAI's API lacks.")


class NamedCapabilities(BaseModel):
    """A model as llama-server lists it beside OpenAI's list."""

    name: str = Field(description="Name of the model.")
    model: str = Field(description="The name again.")
    capabilities: list[Literal["completion", "multimodal"]] = Field(
        description="completion: it generates text. multimodal: it reads images or sound."
    )


class ModelList(BaseModel):
    """The models of this server."""

    models: list[NamedCapabilities] = Field(
        description="A field of llama-server: the models of `data`, and which read more than text."
    )
    object: Literal["list"]
    data: list[ListedModel] = Field(description="The models, the default one first.")
    has_more: bool = Field(description="Whether `limit` left models out.")
    first_id: str | None = Field(description="Name of the first model in the list.")
    last_id: str | None = Field(description="Name of the last one.")


Reload = Annotated[
    bool,
    Query(
        description="Look for bundles first: new ones are offered, and those that are gone are "
        "not. Needs an API key if the server has keys."
    ),
]


Limit = Annotated[
    int | None, Query(ge=1, le=1000, description="Maximum number of models. By default all.")
]
AfterId = Annotated[str | None, Query(description="List the models after this one.")]
BeforeId = Annotated[str | None, Query(description="List the models before this one.")]


@router.get("/v1/models", summary="List the models", response_model_exclude_unset=True)
async def models(
    pool: Pool,
    request: Request,
    reload: Reload = False,
    limit: Limit = None,
    after_id: AfterId = None,
    before_id: BeforeId = None,
) -> ModelList:
    """Return the models of this server, and which of them are loaded."""
    if reload:
        await pool.rescan()
    data = [entry for deployment in pool for entry in _with_adapters(pool, deployment)]
    names = [listed.id for listed, _ in data]
    start = 0 if after_id is None else _index(names, after_id, "after_id") + 1
    end = len(data) if before_id is None else _index(names, before_id, "before_id")
    shown = data[start:end]
    if limit is not None:
        shown = shown[-limit:] if before_id is not None else shown[:limit]
    return ModelList(
        models=[_named(listed) for listed, _ in shown],
        object="list",
        data=[_shown(request, *entry) for entry in shown],
        has_more=len(shown) < len(data[start:end]),
        first_id=shown[0][0].id if shown else None,
        last_id=shown[-1][0].id if shown else None,
    )


def _index(names: list[str], name: str, field: str) -> int:
    if name not in names:
        raise InvalidRequest(field=field, got=name, expected=f"one of {', '.join(names)}")
    return names.index(name)


@router.get("/v1/models/{name:path}", summary="Get a model", response_model_exclude_unset=True)
async def model(name: str, pool: Pool, request: Request) -> ListedModel:
    """Return a model of this server."""
    for deployment in pool:
        for listed, _ in _with_adapters(pool, deployment):
            if name in (listed.id, f"{listed.id}:{LATEST}"):
                return _shown(request, listed, deployment)
    raise ModelNotFound(name, [deployment.name for deployment in pool])


def _shown(request: Request, listed: ListedModel, deployment: Deployment) -> ListedModel:
    """A model with the capabilities that the client of a request knows."""
    if VERSION_HEADER not in request.headers:
        return listed
    return listed.model_copy(update={"capabilities": capabilities(deployment)})


def _with_adapters(pool: ModelPool, deployment: Deployment) -> list[tuple[ListedModel, Deployment]]:
    """A model, and with each of its adapters."""
    listed, service = _listed(pool, deployment), deployment.current
    adapters = service.adapters if isinstance(service, LanguageService) else ()
    names = (f"{deployment.name}:{adapter.name}" for adapter in adapters)
    adapted = (listed.model_copy(update={"id": name, "display_name": name}) for name in names)
    return [(entry, deployment) for entry in (listed, *adapted)]


def _listed(pool: ModelPool, deployment: Deployment) -> ListedModel:
    manifest = deployment.manifest
    known: dict[str, Any] = {} if manifest is None else {"capabilities": _capabilities(deployment)}
    if isinstance(manifest, LanguageManifest):
        known["architecture"] = _architecture(manifest)
    if isinstance(manifest, LanguageManifest | EncoderManifest):
        context = served_context(deployment, manifest)
        known |= {"max_input_tokens": context, "max_tokens": context}
    return ListedModel(
        **known,
        id=deployment.name,
        object="model",
        created=int(deployment.created),
        owned_by="hearth",
        type="model",
        lifecycle="active",
        display_name=deployment.name,
        created_at=datetime.fromtimestamp(int(deployment.created), UTC).isoformat(),
        aliases=list(deployment.aliases),
        tags=list(deployment.tags),
        meta=_size(deployment, manifest)
        if isinstance(manifest, LanguageManifest | EncoderManifest)
        else None,
        status=_status(pool, deployment),
    )


def _named(listed: ListedModel) -> NamedCapabilities:
    named: list[Literal["completion", "multimodal"]] = []
    known = {*listed.capabilities}
    if "completion" in known:
        named.append("completion")
    if {"vision", "audio"} & known:
        named.append("multimodal")
    return NamedCapabilities(name=listed.id, model=listed.id, capabilities=named)


def _size(deployment: Deployment, manifest: LanguageManifest | EncoderManifest) -> ModelSize:
    sound = manifest.sound if isinstance(manifest, LanguageManifest) else None
    return ModelSize(
        n_vocab=manifest.vocab_size,
        n_ctx=served_context(deployment, manifest),
        sound_seconds=None if sound is None else sound.max_seconds,
        sampling=served_sampling(deployment, manifest),
    )


def _capabilities(deployment: Deployment) -> list[Capability]:
    match deployment.manifest:
        case EncoderManifest(scores=scores):
            return ["rerank" if scores else "embedding"]
        case SpeechManifest():
            return ["transcription"]
        case ArraysManifest():
            return ["arrays"]
        case LanguageManifest(image_settings=images, sound=sound) if deployment.has_chat_template:
            seen: list[Capability] = [] if images is None else ["vision"]
            heard: list[Capability] = [] if sound is None else ["audio", "transcription"]
            return ["completion", "chat", *seen, *heard, "embedding"]
        case _:
            return ["completion", "embedding"]


def _architecture(manifest: LanguageManifest) -> Architecture:
    seen: list[Literal["image"]] = [] if manifest.image_settings is None else ["image"]
    heard: list[Literal["audio"]] = [] if manifest.sound is None else ["audio"]
    return Architecture(input_modalities=["text", *seen, *heard], output_modalities=["text"])


def _status(pool: ModelPool, deployment: Deployment) -> ModelStatus:
    loaded, verdict = deployment.current is not None, deployment.verdict
    error = verdict.message if verdict and not verdict.passed else deployment.failure
    if deployment.folder is not None:  # the list is public, the path is not
        error = error.replace(str(deployment.folder), deployment.name)
    failure: dict[str, Any] = {"failed": True, "error": error} if error else {}
    return ModelStatus(
        **failure,
        value="loading" if pool.is_loading(deployment) else "loaded" if loaded else "unloaded",
        pinned=deployment.pinned,
        memory=deployment.memory,
        requests=deployment.requests,
        idle_seconds=round(time.monotonic() - deployment.last_used, 1) if loaded else None,
    )
