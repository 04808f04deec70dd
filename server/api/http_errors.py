"""Errors as HTTP: one table from error to status, and one shape of body.

    {"error": {"code": 400, "type": "invalid_request_error", "message": "...",
               "param": "prompt[3]", "got": 99, "wanted": "token ids from 0 to 15"}}

OpenAI's shape with llama-server's numeric code. `param` is null, and `got` and `wanted` are not
there, when no field of the request is at fault. A full queue adds `queued` and `limit`. The
`request_id` stands in the server's log, too.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from server.errors import (
    ClientDisconnected,
    GenerationFailed,
    InvalidRequest,
    NotReloaded,
    QueueFull,
    RulesFailed,
    Scalar,
    ServerError,
    TextTooLong,
    Unavailable,
)
from server.logs import request_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI, Request

# The first row whose class fits counts.
STATUS: tuple[tuple[type[ServerError], int], ...] = (
    (InvalidRequest, 400),
    (TextTooLong, 400),
    (RulesFailed, 400),
    (QueueFull, 429),
    (ClientDisconnected, 499),  # nginx's number; nobody is there to read it
    (GenerationFailed, 500),
    (NotReloaded, 500),
    (Unavailable, 503),
)
_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
}
_JSON_WORDS = re.compile(r"\b(True|False)\b")  # where pydantic writes Python's
_SHOWN = 200  # characters of what came


class Fault(BaseModel):
    """What went wrong. `got` and `wanted` are there when a field, `param`, is at fault.

    `queued` requests wait, at most `limit` may: there when the queue is full.
    """

    code: int
    type: str
    message: str
    param: str | None
    got: Scalar = None
    wanted: str = ""
    queued: int = 0
    limit: int = 0
    request_id: str = ""


class ErrorBody(BaseModel):
    """The body of every answer that is an error."""

    error: Fault


# What every route may answer besides, for its document; it also keeps FastAPI's own 422 out of it.
ERRORS: dict[int | str, dict[str, Any]] = {code: {"model": ErrorBody} for code in ("4XX", "5XX")}


def install(app: FastAPI) -> None:
    """Give all of the application's errors the one shape."""
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ServerError, _error)


def describe(error: Exception) -> ErrorBody:
    """The body for an error; one that is not a ServerError keeps its details to the log."""
    if not isinstance(error, ServerError):
        return fault(500, "the server failed by an internal error, which is in its log")
    code = next(code for kind, code in STATUS if isinstance(error, kind))
    if isinstance(error, InvalidRequest):
        return fault(code, str(error), error.field, got=error.got, wanted=error.wanted)
    if isinstance(error, QueueFull):
        return fault(code, str(error), queued=error.queued, limit=error.limit)
    return fault(code, str(error))


def encode(body: ErrorBody) -> str:
    """The body as JSON; in ASCII, since what came may hold half a surrogate pair."""
    return json.dumps(body.model_dump(exclude_unset=True), allow_nan=False)


def fault(code: int, message: str, param: str | None = None, **details: Any) -> ErrorBody:
    """The body for a status; `details` are fields of a Fault."""
    if id_ := request_id():
        details["request_id"] = id_
    kind = _TYPES.get(code, "invalid_request_error")
    return ErrorBody(error=Fault(code=code, type=kind, message=message, param=param, **details))


def respond(body: ErrorBody, headers: dict[str, str] | None = None) -> Response:
    """The answer with a body of an error and its status."""
    return Response(encode(body), body.error.code, headers, media_type="application/json")


async def _error(_request: Request, error: Exception) -> Response:
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, QueueFull) else None
    return respond(describe(error), headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    messages = {
        404: f"there is no {request.url.path}",
        405: f"{request.url.path} takes {headers.get('Allow')}, not {request.method}",
    }
    message = messages.get(error.status_code, error.detail)
    return respond(fault(error.status_code, message), headers)


async def _validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [_at_the_tag(problem) for problem in error.errors()]
    first = problems[0]
    if first["type"] == "json_invalid":
        reason = f"{first['ctx']['error']} at character {first['loc'][-1]}"
        return respond(fault(400, f"the body is not JSON: {reason}"))
    # Of the first field at fault, what was found deepest: the members of a union all complain.
    same = [problem for problem in problems if problem["loc"][:2] == first["loc"][:2]]
    deepest = max(same, key=lambda problem: len(problem["loc"]))
    field = _path(deepest["loc"], error.body)
    here = [
        problem
        for problem in same
        if len(problem["loc"]) == len(deepest["loc"]) and _path(problem["loc"], error.body) == field
    ]
    malformed = InvalidRequest(
        field=field,
        got=None if deepest["type"] == "missing" else shown(deepest["input"]),
        wanted=" or ".join(dict.fromkeys(_wanted(problem) for problem in here)),
    )
    return respond(describe(malformed))


def _at_the_tag(problem: dict[str, Any]) -> dict[str, Any]:
    """A problem with the field that tells the members of a union apart is one of that field."""
    if problem["type"] not in ("union_tag_invalid", "union_tag_not_found"):
        return problem
    tag = problem["ctx"]["discriminator"].strip("'")
    found = problem["type"] == "union_tag_invalid"
    return {
        **problem,
        "type": problem["type"] if found else "missing",
        "loc": (*problem["loc"], tag),
        "input": problem["input"].get(tag) if found else None,
    }


def _wanted(problem: dict[str, Any]) -> str:
    """What pydantic says, as the end of "wanted ..."."""
    match problem["type"]:
        case "extra_forbidden":
            return "no field of this name"
        case "missing":
            return "a value"
        case "union_tag_invalid":
            return f"one of {problem['ctx']['expected_tags']}"
        case "literal_error":
            return _JSON_WORDS.sub(lambda word: word[0].lower(), problem["ctx"]["expected"])
        case "tuple_type":
            return "a valid list"
        case "model_attributes_type" | "model_type":
            return "a JSON object, sent as application/json"
    return re.sub(r"^(\w+ should (be|have)|Value error,) ", "", problem["msg"])


def _path(location: Sequence[str | int], body: object) -> str:
    """`prompt[3]` for ("body", "prompt", "list[...]", 3): the names of a union's members go."""
    path = ""
    last = len(location) - 1
    for place, key in enumerate(location[1:], 1):
        if isinstance(key, int):
            path += f"[{key}]"
            body = body[key] if isinstance(body, list) else None
        elif isinstance(body, dict) and (key in body or place == last):
            path += f".{key}" if path else key
            body = body.get(key)
    return path or "body"


def shown(value: object) -> Scalar:
    """What came, as a JSON scalar that is not too long."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    try:
        text = value if isinstance(value, str) else repr(value)
    except RecursionError:  # nested as deep as JSON may be, which is deeper than may be written
        text = "something nested too deep to be shown"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
