"""How a route comes by the service."""

from typing import Annotated, cast

from fastapi import Depends, Request

from server.service import Service


# Async, for FastAPI runs what is not in a thread, for every request.
async def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


Serving = Annotated[Service, Depends(_service)]
