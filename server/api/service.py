"""How a route comes by the service."""

from typing import Annotated, cast

from fastapi import Depends, Request

from server.array_service import ArraysService
from server.served import Served
from server.service import Service


# Async, for FastAPI runs what is not in a thread, for every request.
async def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


async def _array_service(request: Request) -> ArraysService:
    return cast("ArraysService", request.app.state.service)


async def _served(request: Request) -> Served:
    return cast("Served", request.app.state.service)


# A language model, a program of functions on arrays, and whichever of them it is.
Serving = Annotated[Service, Depends(_service)]
ServingArrays = Annotated[ArraysService, Depends(_array_service)]
ServingAny = Annotated[Served, Depends(_served)]
