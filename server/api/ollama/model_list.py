"""GET /api/version, /api/tags and /api/ps, and POST /api/show: the models in Ollama's form."""

import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, Field

from hearthd.bundle import CHAT_TEMPLATE, NO_PRESET, EncoderManifest, LanguageManifest, digest
from hearthd.bundle.modelfile_text import modelfile, parameter_lines
from hearthd.bundle.parsing.shard_names import quantization_in
from hearthd.server.api.current_service import Pool, served_context, served_sampling
from hearthd.server.api.fields import Fields
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.ollama.answers import rfc3339
from hearthd.server.api.ollama.error_bodies import ERRORS
from hearthd.server.api.ollama.model_names import OllamaName, bare, tagged
from hearthd.server.api.surface import surface
from hearthd.server.errors import ModelNotFound
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.language_service import LanguageService
from hearthd.server.services.model_pool import ModelPool
from hearthd.server.version import version
from hearthd.text.errors import InvalidRequest
from hearthd.text.reasoning import reasoning_tags

router = surface("Ollama", ERRORS, JsonRoute)

# The version that brought the newest field here, `logprobs`. GitHub Copilot demands 0.6.4.
_OLLAMA = "0.12.11"
# Clients compare times with this one. Ollama sends a year after 2300.
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
TextManifest = LanguageManifest | EncoderManifest
OllamaCapability = Literal["completion", "tools", "vision", "audio", "thinking", "embedding"]


class OllamaVersion(BaseModel):
    """The versions of the API and of the server."""

    version: str = Field(
        description="Version of Ollama whose API the server has. Clients demand a lowest one."
    )
    hearth: str = Field(description="Version of Hearth. A field that Ollama lacks.")


class OllamaDetails(BaseModel):
    """What a model is."""

    parent_model: str = Field(default="", description="Always empty.")
    format: Literal["hearth"] = "hearth"
    family: str = Field(description="Name of the architecture, such as gemma3.")
    families: list[str] = Field(description="A list with the same name.")
    parameter_size: str = Field(default="", description="Always empty: bundles do not say it.")
    quantization_level: str = Field(
        description="Quantization in the name of the GGUF file whose bits are kept, such as "
        "Q4_K_M, or the precision of the weights, such as int8-g32."
    )


class OllamaModel(BaseModel):
    """A model of this server."""

    name: str = Field(description="Name of the model, with its tag.")
    model: str = Field(description="The same name.")
    size: int = Field(description="Size of the bundle's files in bytes.")
    digest: str = Field(description="SHA-256 digest of the bundle, 64 hexadecimal digits.")
    details: OllamaDetails


class OllamaListedModel(OllamaModel):
    """A model that the server offers."""

    modified_at: str = Field(description="Time when the server opened the bundle.")
    capabilities: list[OllamaCapability] = Field(description="What the model can do.")


class OllamaTags(BaseModel):
    """The models that the server offers."""

    models: list[OllamaListedModel] = Field(description="The models, the default one first.")


class OllamaLoadedModel(OllamaModel):
    """A model that is loaded."""

    size: int = Field(description="Bytes that the model takes, without the process.")
    size_vram: Literal[0] = Field(
        default=0, description="Always 0: the server computes on the CPU."
    )
    expires_at: str = Field(
        description="Time when the model is unloaded without further requests. The year 9999 is "
        "for never."
    )
    context_length: int = Field(description="Size of the context in tokens.")


class OllamaProcesses(BaseModel):
    """The models that are loaded."""

    models: list[OllamaLoadedModel] = Field(description="The models.")


class OllamaShowRequest(Fields):
    """The name of a model."""

    model: OllamaName = Field("", description="Name of a model in /api/tags.")
    name: OllamaName = Field("", description="The older name of `model`.")
    verbose: bool = Field(False, description="Accepted and ignored.")


class OllamaPresetMessage(BaseModel):
    """A message before every conversation."""

    role: Literal["system", "user", "assistant"] = Field(description="The author.")
    content: str = Field(description="The text.")


class OllamaShown(BaseModel):
    """A model in detail."""

    modelfile: str = Field(
        description="The Modelfile that makes a model with these settings of this one."
    )
    parameters: str = Field(
        description="Defaults of `options` that are not Ollama's, a line for each."
    )
    template: str = Field(description="The chat template, in Jinja. Empty without one.")
    license: str = Field(description="The license, if a Modelfile or Ollama has it; or empty.")
    system: str = Field(
        description="System message of conversations without one, as a Modelfile sets it; or empty."
    )
    messages: list[OllamaPresetMessage] = Field(
        description="Messages before every conversation, as a Modelfile sets them."
    )
    details: OllamaDetails
    model_info: dict[str, Any] = Field(
        description="Facts with the names of GGUF: general.architecture, and the sizes of the "
        "context, the embedding and the vocabulary."
    )
    capabilities: list[OllamaCapability] = Field(description="What the model can do.")
    modified_at: str = Field(description="Time when the server opened the bundle.")


@router.get("/api/version", summary="Get the version of the API")
async def ollama_version() -> OllamaVersion:
    """Return the version of Ollama whose API this is, and of the server."""
    return OllamaVersion(version=_OLLAMA, hearth=version())


@router.get("/api/tags", summary="List the models (Ollama)")
async def ollama_tags(pool: Pool) -> OllamaTags:
    """Return the language models and encoders of this server, and their LoRA adapters."""
    return OllamaTags(
        models=[
            OllamaListedModel(
                **_facts(name, manifest),
                size=sum(file.bytes for file in manifest.files),
                modified_at=_opened(deployment),
                capabilities=_capabilities(deployment, manifest),
            )
            for deployment, manifest in text_models(pool)
            for name in _names(deployment)
        ]
    )


@router.get("/api/ps", summary="List the models that are loaded")
async def ollama_processes(pool: Pool) -> OllamaProcesses:
    """Return the models that are loaded, and when they will be unloaded."""
    return OllamaProcesses(
        models=[
            OllamaLoadedModel(
                **_facts(deployment.name, manifest),
                size=deployment.memory,
                expires_at=_expiry(deployment),
                context_length=served_context(deployment, manifest),
            )
            for deployment, manifest in text_models(pool)
            if deployment.current is not None
        ]
    )


@router.post("/api/show", summary="Show a model")
async def ollama_show(body: OllamaShowRequest, pool: Pool) -> OllamaShown:
    """Return the details of a model. It need not be loaded."""
    name = body.model or body.name
    if not name:
        raise InvalidRequest(field="model", got=name, expected="the name of a model")
    deployment, manifest = _find(pool, name)
    facts = _facts(name, manifest)
    preset = manifest.preset if isinstance(manifest, LanguageManifest) else NO_PRESET
    return OllamaShown(
        modelfile=modelfile(facts["name"], preset),
        parameters="\n".join(parameter_lines(served_sampling(deployment, manifest))),
        template=template_source(deployment),
        license=preset.license,
        system=preset.system,
        messages=[
            OllamaPresetMessage(role=message.role, content=message.content)
            for message in preset.messages
        ],
        details=facts["details"],
        model_info=_model_info(deployment, manifest),
        capabilities=_capabilities(deployment, manifest),
        modified_at=_opened(deployment),
    )


def text_models(pool: ModelPool) -> Iterator[tuple[Deployment, TextManifest]]:
    """The models of texts whose bundles could be read."""
    for deployment in pool:
        if isinstance(deployment.manifest, LanguageManifest | EncoderManifest):
            yield deployment, deployment.manifest


def quantization(manifest: TextManifest) -> str:
    """The precision of the weights; of the bits of a GGUF file, what the name of the file says."""
    names = [source.name for source in manifest.provenance.sources]
    level = quantization_in(names[0]) if manifest.precision == "native" and names else None
    return manifest.precision if level is None else level.upper()


def template_source(deployment: Deployment) -> str:
    """The chat template of a model, loaded or not; empty without one."""
    if deployment.description is not None:
        return deployment.description.chat_template
    if not deployment.has_chat_template or deployment.folder is None:
        return ""
    try:
        return (deployment.folder / CHAT_TEMPLATE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # reported when the model is loaded
        return ""


def _find(pool: ModelPool, name: str) -> tuple[Deployment, TextManifest]:
    """The model of a name in /api/tags; raises ModelNotFound for any other."""
    for deployment, manifest in text_models(pool):
        if name in map(bare, _names(deployment)):
            return deployment, manifest
    raise ModelNotFound(name, [deployment.name for deployment in pool])


def _names(deployment: Deployment) -> list[str]:
    """The names of a model and of its loaded adapters, with their tags."""
    service = deployment.current
    adapters = service.adapters if isinstance(service, LanguageService) else ()
    return [
        tagged(deployment.name),
        *(f"{deployment.name}:{adapter.name}" for adapter in adapters),
    ]


def _facts(name: str, manifest: TextManifest) -> dict[str, Any]:
    """The fields that a model has in every list."""
    return {
        "name": tagged(name),
        "model": tagged(name),
        "digest": digest(manifest),
        "details": OllamaDetails(
            family=manifest.architecture,
            families=[manifest.architecture],
            quantization_level=quantization(manifest),
        ),
    }


def _capabilities(deployment: Deployment, manifest: TextManifest) -> list[OllamaCapability]:
    if isinstance(manifest, EncoderManifest):
        return [] if manifest.scores else ["embedding"]
    capabilities: list[OllamaCapability] = ["completion"]
    if deployment.has_chat_template:
        capabilities.append("tools")
    if manifest.image_settings is not None:
        capabilities.append("vision")
    if manifest.sound is not None:
        capabilities.append("audio")
    if reasoning_tags(template_source(deployment)):
        capabilities.append("thinking")
    if manifest.pooling == "last":  # it was trained to embed
        capabilities.append("embedding")
    return capabilities


def _model_info(deployment: Deployment, manifest: TextManifest) -> dict[str, Any]:
    name = manifest.architecture
    width = manifest.width if isinstance(manifest, EncoderManifest) else manifest.hidden
    return {
        "general.architecture": name,
        "general.basename": deployment.name,
        f"{name}.context_length": served_context(deployment, manifest),
        f"{name}.embedding_length": width,
        f"{name}.vocab_size": manifest.vocab_size,
    }


def _opened(deployment: Deployment) -> str:
    return rfc3339(datetime.fromtimestamp(deployment.created, UTC))


def _expiry(deployment: Deployment) -> str:
    timeout = math.inf if deployment.idle_timeout is None else deployment.idle_timeout
    idle = 0.0 if deployment.requests else time.monotonic() - deployment.last_used
    try:
        end = datetime.now(UTC) + timedelta(seconds=timeout - idle)
    except OverflowError:
        end = _NEVER
    return rfc3339(_NEVER if deployment.pinned else min(end, _NEVER))
