"""POST /v1/bundle/reload: serve what lies at the bundle's place now, as SIGHUP does."""

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from server.api.current_service import Deployed
from server.api.http_errors import ERRORS
from server.services.deployment import Reload

router = APIRouter(responses=ERRORS, tags=["operation"])


class Reloaded(BaseModel):
    """How the latest reload ended."""

    succeeded: bool
    message: str
    bundle: str = Field(description="system_fingerprint of the answers since then.")
    seconds: float


@router.post("/v1/bundle/reload")
async def reload(deployment: Deployed, request: Request) -> Reloaded:
    """Load the bundle anew, beside the one that is served, and answer when that is done.

    New requests go to the new bundle once its self-test has passed; those that run end on the old
    one. Otherwise the answer is a 500 with the reason, and the old one goes on being served. Only
    on a server with API keys: else anybody could.
    """
    if not request.app.state.has_keys:
        raise HTTPException(403, "only on a server with API keys (--api-key), or by SIGHUP")
    return shown(await deployment.reload())


def shown(reload: Reload) -> Reloaded:
    """A reload as it is answered."""
    return Reloaded(
        succeeded=reload.succeeded,
        message=reload.message,
        bundle=reload.bundle,
        seconds=round(reload.seconds, 3),
    )
