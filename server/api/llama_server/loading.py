"""POST /models/load and /models/unload, as in llama-server's router mode."""

from fastapi import Request
from pydantic import BaseModel, Field

from hearthd.server.api.current_service import Pool
from hearthd.server.api.disconnect import unless_disconnected
from hearthd.server.api.fields import Fields, Text
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.surface import surface

router = surface("llama-server", ERRORS, JsonRoute)


class ModelRequest(Fields):
    """The name of a model."""

    model: Text = Field(min_length=1, description="Name of a model in /v1/models.")


class Done(BaseModel):
    """The request was carried out."""

    success: bool = Field(description="Always true.")


@router.post("/models/load", summary="Load a model")
async def load(body: ModelRequest, pool: Pool, request: Request) -> Done:
    """Load a model, and answer when it is loaded. Other models may be unloaded for it.

    A model that cannot be loaded is a 503 with the reason.
    """
    await unless_disconnected(request, pool.load(pool.find(body.model)))
    return Done(success=True)


@router.post("/models/unload", summary="Unload a model")
async def unload(body: ModelRequest, pool: Pool) -> Done:
    """Give the memory of a model back, and answer when that is done.

    The requests that run are answered first. The next request to the model loads it again.
    """
    await pool.unload(pool.find(body.model))
    return Done(success=True)
