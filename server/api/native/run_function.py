"""POST /run: run a function of the bundle on arrays, sent as JSON or as raw bytes."""

import asyncio
from typing import Any

from fastapi import Request, Response

from hearthd.server.api.current_service import CurrentArrayService
from hearthd.server.api.disconnect import unless_disconnected, whole_body
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.native.array_bodies import (
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
from hearthd.server.api.surface import surface
from hearthd.text.errors import InvalidRequest

router = surface("Arrays", ERRORS)

_JSON = "application/json"
_BYTES = {"schema": {"type": "string", "format": "binary"}}


def _header(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "schema": {"type": "string"}, "description": description}


def _answer_header(description: str) -> dict[str, Any]:
    return {"schema": {"type": "string"}, "description": f"With {RAW}: {description}"}


_DOCUMENT = {
    "requestBody": {
        "required": True,
        "content": {_JSON: {"schema": RunRequest.model_json_schema()}, RAW: _BYTES},
    },
    "parameters": [
        _header(FUNCTION, f"With {RAW}: the name of the function, such as run."),
        _header(
            INPUTS,
            f"With {RAW}: name and shape of each array, in order, such as x=100x1x8, h0=1x1x16.",
        ),
    ],
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {_JSON: {"schema": RunResponse.model_json_schema()}, RAW: _BYTES},
        "headers": {
            FUNCTION: _answer_header("the name of the function."),
            OUTPUTS: _answer_header("name and shape of each array, in order."),
        },
    }
}


@router.post(
    "/run",
    summary="Run a function on arrays",
    response_class=Response,
    responses=_ANSWERS,
    openapi_extra=_DOCUMENT,
)
async def run(service: CurrentArrayService, request: Request) -> Response:
    """Run a function of the bundle on the arrays in the request.

    The server keeps no state between requests: send a state that the function returned with the
    next request. The answer is JSON, or raw little-endian float32 if the request's Accept header
    contains application/octet-stream. GET /v1/bundle lists the functions.
    """
    body = await whole_body(request)
    # In a thread: ten megabytes of JSON would block the event loop.
    call = await asyncio.to_thread(_read, request, body, service)
    work = service.run(call.function.name, call.inputs)
    outputs = await unless_disconnected(request, work)
    if RAW in request.headers.get("Accept", ""):
        content, headers = write_raw(call.function, outputs)
        return Response(content, media_type=RAW, headers=headers)
    content = await asyncio.to_thread(write_json, call.function, outputs)
    return Response(content, media_type=_JSON)


def _read(request: Request, body: bytes, service: CurrentArrayService) -> Call:
    content_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if content_type == RAW:
        return read_raw(body, request.headers, service.functions)
    if content_type == _JSON:
        return read_json(body, service.functions)
    raise InvalidRequest(field="Content-Type", got=content_type, expected=f"{_JSON} or {RAW}")
