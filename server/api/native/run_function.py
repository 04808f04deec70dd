"""POST /run: run a function of the bundle on arrays, which come and go as JSON or as raw bytes."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from server.api.current_service import CurrentArrayService
from server.api.disconnect import unless_disconnected
from server.api.http_errors import ERRORS
from server.api.native.array_bodies import (
    FUNCTION,
    INPUTS,
    OUTPUTS,
    RAW,
    Call,
    RunRequest,
    RunResponse,
    read_json,
    read_raw,
    write_json,
    write_raw,
)
from server.errors import ClientDisconnected, InvalidRequest

router = APIRouter(responses=ERRORS)

_JSON = "application/json"
_BYTES = {"schema": {"type": "string", "format": "binary"}}


def _header(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "schema": {"type": "string"}, "description": description}


_DOCUMENT = {
    "requestBody": {
        "required": True,
        "content": {_JSON: {"schema": RunRequest.model_json_schema()}, RAW: _BYTES},
    },
    "parameters": [
        _header(FUNCTION, f"With {RAW}: the function, as run."),
        _header(INPUTS, f"With {RAW}: the arrays in the body, as x=100x1x8, h0=1x1x16."),
    ],
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {_JSON: {"schema": RunResponse.model_json_schema()}, RAW: _BYTES},
        "headers": {
            name: {"schema": {"type": "string"}, "description": f"With {RAW}."}
            for name in (FUNCTION, OUTPUTS)
        },
    }
}


@router.post("/run", response_class=Response, responses=_ANSWERS, openapi_extra=_DOCUMENT)
async def run(service: CurrentArrayService, request: Request) -> Response:
    """Run a function.

    The server keeps nothing between requests: a state that a function gives goes into the next
    request. The answer is JSON, or raw if the request's Accept names application/octet-stream.
    """
    body = await _body(request)
    # Not in the event loop: of ten megabytes of JSON the others would notice.
    call = await asyncio.to_thread(_read, request, body, service)
    work = service.run(call.function.name, call.inputs)
    outputs = await unless_disconnected(request, work)
    if RAW in request.headers.get("Accept", ""):
        content, headers = write_raw(call.function, outputs)
        return Response(content, media_type=RAW, headers=headers)
    content = await asyncio.to_thread(write_json, call.function, outputs)
    return Response(content, media_type=_JSON)


async def _body(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise ClientDisconnected("the client went away before its request was whole") from error


def _read(request: Request, body: bytes, service: CurrentArrayService) -> Call:
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind == RAW:
        return read_raw(body, request.headers, service.functions)
    if kind == _JSON:
        return read_json(body, service.functions)
    raise InvalidRequest(field="Content-Type", got=kind, wanted=f"{_JSON} or {RAW}")
