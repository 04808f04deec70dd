"""POST /api/pull, POST /api/copy and DELETE /api/delete: change which models there are.

/api/push and /api/blobs are refused: they say what to do in their place.

They change the bundles in --home, so they need API keys and a server of all bundles in --home.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import cast

from fastapi import Request, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from hearthd.bundle import NotABundle
from hearthd.bundle.kept_bundles import readable_name
from hearthd.server.api.current_service import Pool
from hearthd.server.api.disconnect import unless_disconnected
from hearthd.server.api.fields import Fields, Text
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.ndjson import LineStream
from hearthd.server.api.ollama.error_bodies import ERRORS, stream_error
from hearthd.server.api.ollama.model_names import OllamaName
from hearthd.server.api.openapi import json_lines
from hearthd.server.api.surface import surface
from hearthd.server.errors import ModelNotFound, disk_change
from hearthd.server.services.bundle_files import copy_bundle, remove_bundle
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.model_pool import ModelPool
from hearthd.server.services.pulls import PullProgress, pull, pull_command
from hearthd.text.errors import InvalidRequest, NotSupported

router = surface("Ollama", ERRORS, JsonRoute)

_HUB = re.compile(r"(?:https?://)?(?:hf\.co|huggingface\.co)/([\w.-]+/[\w.-]+)(?::([\w.-]+))?")
_DIGEST = "Identifies the file or the stage that the line is about."


class OllamaPullRequest(Fields):
    """A model of the Hugging Face Hub."""

    model: Text = Field(
        "",
        description="hf.co/ORG/REPO or hf.co/ORG/REPO:QUANT. The model then has this name, and is "
        "listed with `-` in place of `/` and `:`.",
    )
    name: Text = Field("", description="The older name of `model`.")
    stream: bool = Field(True, description="Send the progress as a stream of JSON lines.")
    insecure: bool = Field(False, description="Accepted and ignored.")


class OllamaProgress(BaseModel):
    """The progress of a pull."""

    status: str = Field(description="The running stage. success at the end.")
    digest: str = Field(default="", description=_DIGEST)
    total: int = Field(default=0, description="Bytes of the file.")
    completed: int = Field(default=0, description="Bytes that have been downloaded.")


class OllamaCopyRequest(Fields):
    """The names of a model and of its copy."""

    source: OllamaName = Field(min_length=1, description="Name of a model.")
    destination: OllamaName = Field(min_length=1, description="Name of the copy.")


class OllamaDeleteRequest(Fields):
    """The name of a model."""

    model: OllamaName = Field("", description="Name of a model.")
    name: OllamaName = Field("", description="The older name of `model`.")


@router.post(
    "/api/pull",
    summary="Download a model",
    response_model=OllamaProgress,
    response_model_exclude_unset=True,
    responses=json_lines(OllamaProgress),
)
async def ollama_pull(
    body: OllamaPullRequest, pool: Pool, request: Request
) -> OllamaProgress | LineStream:
    """Download a model from the Hugging Face Hub, bake it, and offer it.

    Unless `stream` is false, the answer is a stream of JSON lines, each an OllamaProgress. When the
    client disconnects, the pull ends; the next one continues the download.
    """
    home = managed_home(request, "pull")
    requested = body.model or body.name
    name = readable_name(requested.removesuffix(":latest"))
    match = _HUB.fullmatch(requested.removesuffix(":latest"))
    is_offered = any(deployment.name == name for deployment in pool)
    if match is None and not is_offered:
        raise InvalidRequest(
            field="model",
            got=requested,
            expected="hf.co/ORG/REPO or hf.co/ORG/REPO:QUANT, a model of the Hugging Face Hub",
        )
    progress = _offered() if match is None else _pulled(_reference(match), name, home, pool)
    if body.stream:
        return LineStream(progress, stream_error)
    return await unless_disconnected(request, _last(progress))


@router.post("/api/copy", summary="Copy a model", response_class=Response)
async def ollama_copy(body: OllamaCopyRequest, pool: Pool, request: Request) -> Response:
    """Offer a model under a second name.

    The files of both are the same on disk, or copies where the file system has no hard links.
    """
    home = managed_home(request, "copy")
    source = managed_bundle(body.source, pool, home)
    destination = new_bundle(body.destination, "destination", home)
    if destination.exists():
        raise InvalidRequest(
            field="destination", got=body.destination, expected="a name that no model has"
        )
    with disk_change(destination.name):
        await asyncio.to_thread(copy_bundle, source, destination)
    await pool.rescan()
    return Response()


@router.delete("/api/delete", summary="Delete a model", response_class=Response)
async def ollama_delete(body: OllamaDeleteRequest, pool: Pool, request: Request) -> Response:
    """Remove the bundle of a model from the disk. Its running requests are answered first."""
    home = managed_home(request, "delete")
    name = body.model or body.name
    folder = managed_bundle(name, pool, home)
    if len(pool) == 1 or _find(name, pool).pinned:
        raise InvalidRequest(
            field="model", got=name, expected="neither the last model nor a pinned one"
        )
    try:
        with disk_change(folder.name):
            await asyncio.to_thread(remove_bundle, folder)
    except NotABundle as error:
        raise InvalidRequest(
            field="model", got=name, expected="a folder with a bundle and nothing else"
        ) from error
    await pool.rescan()
    return Response()


@router.post("/api/push", include_in_schema=False)
async def ollama_push() -> Response:
    """Refuse to upload a model."""
    raise NotSupported("push: this server uploads no models; copy the bundle's folder in --home")


@router.post("/api/blobs/{digest}", include_in_schema=False)
async def ollama_blob() -> Response:
    """Refuse to take a file of weights."""
    raise NotSupported(
        "blobs: this server takes no weights; bake a GGUF file with `hearth bake`, and name the "
        "model in `from` of /api/create"
    )


def managed_home(request: Request, action: str) -> Path:
    """The folder of the bundles that clients manage; raises HTTPException."""
    if not request.app.state.has_keys:
        raise HTTPException(
            403, f"{action}: not allowed on a server without API keys; set --api-key"
        )
    home = cast("Path | None", request.app.state.home)
    if home is None:
        raise HTTPException(
            403,
            f"{action}: this server offers the bundles of its command line; start `hearth serve` "
            "without MODEL to offer and change those in --home",
        )
    return home


def new_bundle(name: str, field: str, home: Path) -> Path:
    """The folder for a model with a name from a field; raises InvalidRequest."""
    folder = home / readable_name(name)
    if folder.name != name:
        raise InvalidRequest(
            field=field, got=name, expected="a name of letters, digits and `_.+-`, without a tag"
        )
    return folder


def _find(name: str, pool: ModelPool) -> Deployment:
    """The model of exactly this name; raises ModelNotFound."""
    for deployment in pool:
        if deployment.name == name:
            return deployment
    raise ModelNotFound(name, [deployment.name for deployment in pool])


def managed_bundle(name: str, pool: ModelPool, home: Path) -> Path:
    """The folder of a model in `home`; raises ModelNotFound."""
    folder = _find(name, pool).folder
    if folder is None or folder.parent != home:
        raise ModelNotFound(name, [deployment.name for deployment in pool])
    return folder


def _reference(match: re.Match[str]) -> str:
    repository, quant = match.groups()
    return f"hf:{repository}:{quant}" if quant else f"hf:{repository}"


async def _offered() -> AsyncIterator[OllamaProgress]:
    """The progress of a pull of a model that the server has."""
    yield OllamaProgress(status="success")


async def _pulled(
    reference: str, name: str, home: Path, pool: ModelPool
) -> AsyncIterator[OllamaProgress]:
    """The progress of a pull; raises PullFailed, NotReloaded and StorageFull."""
    yield OllamaProgress(status="pulling manifest")
    async with aclosing(pull(pull_command(reference, name, home))) as stages:
        async for stage in stages:
            if isinstance(stage, PullProgress):
                yield _shown(stage)
            elif (bundle := Path(stage)).name != name and not (home / name).exists():
                # The same weights were baked before.
                with disk_change(name):
                    await asyncio.to_thread(copy_bundle, bundle, home / name)
    await pool.rescan()
    yield OllamaProgress(status="success")


def _shown(stage: PullProgress) -> OllamaProgress:
    if not stage.total:
        return OllamaProgress(status=stage.stage)
    return OllamaProgress(
        status=stage.stage,
        digest=f"sha256:{hashlib.sha256(stage.stage.encode()).hexdigest()}",
        total=stage.total,
        completed=stage.completed,
    )


async def _last(progress: AsyncIterator[OllamaProgress]) -> OllamaProgress:
    return [line async for line in progress][-1]
