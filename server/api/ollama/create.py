"""POST /api/create: a model with the weights of another one, and settings of its own."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import Field

from hearthd.bundle import (
    SIGNATURE,
    AnyManifest,
    BundleError,
    LanguageManifest,
    PresetMessage,
    known_bundles,
    read_manifest,
    write_manifest,
)
from hearthd.server.api.current_service import Pool
from hearthd.server.api.fields import Fields, JsonObject, Text
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.ndjson import LineStream
from hearthd.server.api.ollama.error_bodies import ERRORS, stream_error
from hearthd.server.api.ollama.manage import (
    OllamaProgress,
    managed_bundle,
    managed_home,
    new_bundle,
)
from hearthd.server.api.ollama.model_names import OllamaName
from hearthd.server.api.ollama.request_fields import OllamaOptions
from hearthd.server.api.openapi import json_lines
from hearthd.server.api.surface import surface
from hearthd.server.errors import NotLoaded, disk_change
from hearthd.server.services.bundle_files import copy_bundle
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.model_pool import ModelPool
from hearthd.text.errors import InvalidRequest, NotSupported
from hearthd.text.preset_options import changed, preset_fields

router = surface("Ollama", ERRORS, JsonRoute)

_MAX_TEXT = 2**20  # characters
_MAX_MESSAGES = 1024
Setting = Annotated[Text, Field(max_length=_MAX_TEXT)]


class OllamaFirstMessage(Fields):
    """A message before every conversation."""

    role: Literal["system", "user", "assistant"] = Field(description="The author.")
    content: Setting = Field(description="The text.")


class OllamaCreateRequest(Fields):
    """A model and its settings. A setting that is absent is the one of the model in `from`."""

    model: OllamaName = Field("", description="Name of the new model.")
    name: OllamaName = Field("", description="The older name of `model`.")
    from_: OllamaName = Field("", alias="from", description="Name of a model in /api/tags.")
    parameters: OllamaOptions = Field(
        default_factory=lambda: OllamaOptions.model_validate({}),
        description="Defaults of the `options` of requests.",
    )
    system: Setting | None = Field(
        None, description="System message of conversations that have none."
    )
    messages: Annotated[list[OllamaFirstMessage], Field(max_length=_MAX_MESSAGES)] | None = Field(
        None, description="The first messages of every conversation."
    )
    license: Setting | list[Setting] | None = Field(None, description="Text of the license.")
    stream: bool = Field(True, description="Send the progress as a stream of JSON lines.")
    files: JsonObject = Field(default_factory=dict, description="Rejected: files of weights.")
    adapters: JsonObject = Field(default_factory=dict, description="Rejected: files of adapters.")
    quantize: Text = Field("", description="Rejected: another precision of the weights.")

    def changes(self) -> dict[str, Any]:
        """The fields of a preset that the request sets; raises InvalidRequest."""
        options = self.parameters.model_dump(include=self.parameters.model_fields_set)
        try:
            fields = preset_fields(options)
        except ValueError as error:
            raise InvalidRequest(
                field="parameters", got=str(error), expected="parameters of a Modelfile"
            ) from error
        if self.system is not None:
            fields["system"] = self.system
        if self.messages is not None:
            fields["messages"] = tuple(
                PresetMessage(role=message.role, content=message.content)
                for message in self.messages
            )
        if self.license is not None:
            texts = [self.license] if isinstance(self.license, str) else self.license
            fields["license"] = "\n\n".join(texts)
        return fields


@router.post(
    "/api/create",
    summary="Create a model",
    response_model=OllamaProgress,
    response_model_exclude_unset=True,
    responses=json_lines(OllamaProgress),
)
async def ollama_create(
    body: OllamaCreateRequest, pool: Pool, request: Request
) -> OllamaProgress | LineStream:
    """Offer a model with the weights of another one, and its own parameters and texts.

    The files of both are the same on disk. A model of this name with the same weights gets the new
    settings; its running requests are answered first. Unless `stream` is false, the answer is a
    stream of JSON lines, each an OllamaProgress.
    """
    home = managed_home(request, "create")
    for name in ("files", "adapters", "quantize"):
        if getattr(body, name):
            raise NotSupported(
                f"{name}: this server takes no weights; bake a GGUF file or a Modelfile with "
                "`hearth bake`, and name the model in `from`"
            )
    if not body.from_:
        raise InvalidRequest(field="from", got="", expected="the name of a model in /api/tags")
    source = managed_bundle(body.from_, pool, home)
    destination = new_bundle(body.model or body.name, "model", home)
    try:
        with disk_change(destination.name):
            await _create(source, destination, body.changes(), pool)
    except BundleError as error:
        raise NotLoaded(str(error)) from error
    statuses = _statuses(source)
    if body.stream:
        return LineStream(statuses, stream_error)
    return [status async for status in statuses][-1]


async def _create(
    source: Path, destination: Path, changes: dict[str, Any], pool: ModelPool
) -> None:
    """Write the bundle of a model, and offer it; raises InvalidRequest, BundleError or OSError."""
    original = await asyncio.to_thread(read_manifest, source)
    manifest = _with_preset(source, original, changes)
    if destination.exists():
        model = await asyncio.to_thread(_replaceable, destination, manifest, pool)
        await asyncio.to_thread(write_manifest, destination, manifest)
        await pool.unload(model)
        model.manifest, model.description = manifest, None
    else:
        await asyncio.to_thread(copy_bundle, source, destination, manifest)
        await pool.rescan()
    await asyncio.to_thread(known_bundles.remember_copy, original, manifest)


def _with_preset(source: Path, manifest: AnyManifest, changes: dict[str, Any]) -> AnyManifest:
    """A manifest with other settings; raises InvalidRequest."""
    if not changes:
        return manifest
    if not isinstance(manifest, LanguageManifest):
        raise InvalidRequest(
            field="from", got=source.name, expected="a language model, for parameters and texts"
        )
    if (source / SIGNATURE).exists():
        raise InvalidRequest(
            field="from",
            got=source.name,
            expected="a bundle without a signature, which would not be valid for other settings; "
            "bake a Modelfile, and sign the bundle",
        )
    return dataclasses.replace(manifest, preset=changed(manifest.preset, changes))


def _replaceable(folder: Path, manifest: AnyManifest, pool: ModelPool) -> Deployment:
    """The model of a folder, if it can get another manifest; raises InvalidRequest."""
    model = next((model for model in pool if model.folder == folder), None)
    same = model is not None and read_manifest(folder).files == manifest.files
    if model is None or not same or model.pinned or folder.is_symlink():
        raise InvalidRequest(
            field="model",
            got=folder.name,
            expected="a name that no model has, or a model with the same weights that is not "
            "pinned; DELETE /api/delete removes a model",
        )
    return model


async def _statuses(source: Path) -> AsyncIterator[OllamaProgress]:
    for status in (f"using the files of {source.name}", "writing manifest", "success"):
        yield OllamaProgress(status=status)
