"""How a route comes by the service."""

from typing import Annotated, cast

from fastapi import Depends, Request

from server.service import Service


def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


Serving = Annotated[Service, Depends(_service)]
