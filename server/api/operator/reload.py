"""POST /v1/bundle/reload: load the bundle again, as SIGHUP does."""

from fastapi import Request
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from hearthd.server.api.current_service import NamedModel, Pool
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.surface import surface
from hearthd.server.services.deployment import Reload

router = surface("Server", ERRORS)


class Reloaded(BaseModel):
    """The result of a reload."""

    succeeded: bool = Field(description="Whether the server answers with the new bundle.")
    message: str = Field(description="The result, in a sentence.")
    bundle: str = Field(description="The system_fingerprint of answers since the reload.")
    seconds: float = Field(description="Duration of the reload in seconds.")


@router.post("/v1/bundle/reload", summary="Reload the bundle")
async def reload(deployment: NamedModel, pool: Pool, request: Request) -> Reloaded:
    """Load the bundle again from its folder, and answer when that is done.

    When the self-test of the new bundle passes, new requests use it, and running requests finish on
    the old one. Otherwise the answer is a 500 with the reason, and the old bundle stays in use.
    The route answers 403 on a server without API keys.
    """
    if not request.app.state.has_keys:
        raise HTTPException(
            403, "reload: not allowed on a server without API keys; set --api-key, or send SIGHUP"
        )
    return shown(await pool.reload(deployment))


def shown(reload: Reload) -> Reloaded:
    """A reload as the API reports it."""
    return Reloaded(
        succeeded=reload.succeeded,
        message=reload.message,
        bundle=reload.bundle,
        seconds=round(reload.seconds, 3),
    )
