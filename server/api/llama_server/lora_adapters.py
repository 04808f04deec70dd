"""GET and POST /lora-adapters as in llama-server, and the routes that load and unload adapters."""

from typing import Annotated

from fastapi import Request
from pydantic import BaseModel, Field

from hearthd.server.api.current_service import NamedModel, lease
from hearthd.server.api.fields import MAX_NAMES, Fields, Text
from hearthd.server.api.generation_fields import LoraScale
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.llama_server.loading import Done
from hearthd.server.api.surface import surface
from hearthd.server.lora.adapters import Adapter, Adapters, require_one
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.language_service import LanguageService
from hearthd.text.errors import InvalidRequest

router = surface("llama-server", ERRORS, JsonRoute)


class ListedAdapter(BaseModel):
    """A loaded adapter."""

    id: int = Field(description="Number of the adapter in requests.")
    name: str = Field(description="Name of the adapter: requests name it as `model:name`.")
    path: str = Field(description="Name of the folder or the file that it was read from.")
    scale: float = Field(description="Scale for requests that choose no adapter.")
    requests: int = Field(description="Number of requests that use the adapter.")
    digest: str = Field(description="sha256 of the adapter's files.")


class LoadRequest(Fields):
    """An adapter to load."""

    path: Text = Field(
        min_length=1, description="Folder or GGUF file of the adapter, in --lora-dir."
    )
    name: Annotated[Text, Field(min_length=1, max_length=256)] | None = Field(
        None,
        description="Name of the adapter. Default: the name of its folder or file.",
    )


class UnloadRequest(Fields):
    """An adapter to unload."""

    id: int = Field(ge=0, description="Number of the adapter in /lora-adapters.")


@router.get("/lora-adapters", summary="List the LoRA adapters")
async def list_adapters(deployment: NamedModel, request: Request) -> list[ListedAdapter]:
    """Return the adapters that the model has loaded."""
    return [_listed(adapter) for adapter in await _adapters(request, deployment)]


@router.post("/lora-adapters", summary="Set the default adapter")
async def set_scales(
    body: Annotated[list[LoraScale], Field(max_length=MAX_NAMES)],
    deployment: NamedModel,
    request: Request,
) -> Done:
    """Set the scales for requests that choose no adapter: at most one other than 0.

    Adapters that are not in the list get 0. Running requests keep theirs.
    """
    require_one([entry.scale for entry in body], "scale")
    adapters = await _adapters(request, deployment)
    adapters.set_defaults({entry.id: entry.scale for entry in body})
    return Done(success=True)


@router.post("/lora-adapters/load", summary="Load a LoRA adapter")
async def load_adapter(
    body: LoadRequest, deployment: NamedModel, request: Request
) -> ListedAdapter:
    """Load an adapter while requests run: a folder that PEFT or `hearth tune` wrote, or GGUF.

    It must be in --lora-dir. An adapter that does not fit the model is a 400 with the reason, and
    changes nothing.
    """
    adapters = await _adapters(request, deployment)
    return _listed(await adapters.load(body.path, body.name))


@router.post("/lora-adapters/unload", summary="Unload a LoRA adapter")
async def unload_adapter(body: UnloadRequest, deployment: NamedModel, request: Request) -> Done:
    """Reject new requests for an adapter, and answer when the running ones have ended."""
    adapters = await _adapters(request, deployment)
    await adapters.unload(adapters.numbered(body.id, "id"))
    return Done(success=True)


async def _adapters(request: Request, deployment: Deployment) -> Adapters:
    service = await lease(request, deployment)
    if not isinstance(service, LanguageService):
        raise InvalidRequest(field="model", got=deployment.name, expected="a model with adapters")
    return service.adapters


def _listed(adapter: Adapter) -> ListedAdapter:
    return ListedAdapter(
        id=adapter.id,
        name=adapter.name,
        path=adapter.folder.name,
        scale=adapter.default_scale,
        requests=adapter.users.count,
        digest=adapter.digest.hex(),
    )
