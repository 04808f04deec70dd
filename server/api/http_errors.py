"""Errors as HTTP: a table from error to status, and one form of body.

    {"error": {"code": 400, "type": "invalid_request_error", "message": "...",
               "param": "prompt[3]", "got": 99, "expected": "token ids from 0 to 15"}}

This is OpenAI's error object with llama-server's numeric code. `got` and `expected` are present
when a field of the request, `param`, is invalid; otherwise `param` is null. A full queue adds
`queued` and `limit`. A prompt that is too long has the `type` of llama-server,
exceed_context_size_error, with `n_prompt_tokens` and `n_ctx`, and the `code` of OpenAI,
context_length_exceeded; one that is too long to be tokenized has no `n_prompt_tokens`. A model that
does not exist has OpenAI's code model_not_found, with status 404.
`request_id` is also in the server's log.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, Field
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.routing import Match

from hearthd.server.api.invalid_fields import invalid_field
from hearthd.server.errors import (
    ClientDisconnected,
    GenerationFailed,
    ModelNotFound,
    NotReloaded,
    NotStored,
    PullFailed,
    QueueFull,
    RulesFailed,
    StorageFull,
    TooLargeToStore,
    Unavailable,
)
from hearthd.server.logs import current_request
from hearthd.text.errors import (
    ContextExceeded,
    GrammarsFull,
    InvalidRequest,
    NotSupported,
    RequestError,
    Scalar,
    TextTooLong,
)

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

# The first row with a matching class applies.
STATUS: tuple[tuple[type[RequestError], int], ...] = (
    (InvalidRequest, 400),
    (ModelNotFound, 404),
    (NotStored, 404),
    (TextTooLong, 400),
    (TooLargeToStore, 400),
    (RulesFailed, 400),
    (QueueFull, 429),
    (ClientDisconnected, 499),  # nginx's code; no client is left to read it
    (GenerationFailed, 500),
    (NotReloaded, 500),
    (PullFailed, 500),
    (NotSupported, 501),
    (Unavailable, 503),
    (GrammarsFull, 503),
    (StorageFull, 507),
)
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
    507: "storage_full_error",
}

_MAX_LOGGED = 200  # characters of an error
# Of 1: /v1/v1/models is similar to /v1/models, but /v1/moderations not to /v1/conversations.
_SIMILAR = 0.85

ErrorWord = Literal["context_length_exceeded", "model_not_found"]
_WORD_STATUS: dict[ErrorWord, int] = {"context_length_exceeded": 400, "model_not_found": 404}


class ErrorDetail(BaseModel):
    """The reason why a request was rejected or failed."""

    code: int | ErrorWord = Field(
        description="The HTTP status, or OpenAI's word for a prompt that is too long or a model "
        "that does not exist."
    )
    type: str = Field(description="The class of the error, such as invalid_request_error.")
    message: str = Field(description="The reason, in a sentence.")
    param: str | None = Field(
        description="The path of the invalid field, such as prompt[3]. null if no field is invalid."
    )
    got: Scalar = Field(default=None, description="With `param`: the value of the field.")
    expected: str = Field(
        default="", description="With `param`: the values that the field accepts."
    )
    queued: int = Field(default=0, description="If the queue is full: number of waiting requests.")
    limit: int = Field(
        default=0, description="If the queue is full: maximum number of waiting requests."
    )
    n_prompt_tokens: int = Field(
        default=0,
        description="If the prompt is too long: number of its tokens. Absent if they were not "
        "counted.",
    )
    n_ctx: int = Field(
        default=0, description="If the prompt is too long: size of the context in tokens."
    )
    request_id: str = Field(default="", description="The id of the request, as in X-Request-Id.")


class ErrorResponse(BaseModel):
    """The body of every error."""

    error: ErrorDetail


# Errors of every route, for the OpenAPI document. It also removes FastAPI's own 422 from it.
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorResponse, "description": "The request is invalid or not allowed."},
    "5XX": {"model": ErrorResponse, "description": "The server failed or is not available."},
}


def install(app: FastAPI) -> None:
    """Give all errors of the application one form."""
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestError, _error)


def describe(error: BaseException) -> ErrorResponse:
    """The body for an error; details of an unexpected error go to the log only."""
    if not isinstance(error, RequestError):
        return fault(500, "internal error: see the server's log")
    code = next(code for type_, code in STATUS if isinstance(error, type_))
    if isinstance(error, ContextExceeded):
        return _exceeding(_invalid(code, error), n_prompt_tokens=error.tokens, n_ctx=error.context)
    if isinstance(error, TextTooLong):
        return _exceeding(fault(code, str(error)), n_ctx=error.context)
    if isinstance(error, ModelNotFound):
        body = fault(code, str(error), "model")
        return ErrorResponse(error=body.error.model_copy(update={"code": "model_not_found"}))
    if isinstance(error, InvalidRequest):
        return _invalid(code, error)
    if isinstance(error, NotStored):
        return fault(code, str(error), error.field)
    if isinstance(error, QueueFull):
        return fault(code, str(error), queued=error.queued, limit=error.limit)
    return fault(code, str(error))


def _invalid(code: int, error: InvalidRequest) -> ErrorResponse:
    body = fault(code, str(error), error.field, got=error.got, expected=error.expected)
    _log(error.logged)
    return body


def _log(error: str) -> None:
    """Write an error to the access log. It may have keys of the request, of any length."""
    if record := current_request.get():
        shortened = f"{error[:_MAX_LOGGED]}..."
        record.error = error if len(error) <= _MAX_LOGGED else shortened


def _exceeding(body: ErrorResponse, **sizes: int) -> ErrorResponse:
    """The body with the names that other servers have for a prompt that exceeds the context."""
    named = {"code": "context_length_exceeded", "type": "exceed_context_size_error"}
    return ErrorResponse(error=body.error.model_copy(update={**named, **sizes}))


def encode(body: ErrorResponse) -> str:
    """The body as JSON, in ASCII: a rejected value may hold half a surrogate pair."""
    return json.dumps(body.model_dump(exclude_unset=True), allow_nan=False)


def fault(code: int, message: str, param: str | None = None, **details: Any) -> ErrorResponse:
    """The body for a status; `details` are further fields of ErrorDetail."""
    if record := current_request.get():
        details["request_id"] = record.request_id
    _log(message)
    return ErrorResponse(
        error=ErrorDetail(
            code=code,
            type=_TYPES.get(code, "invalid_request_error"),
            message=message,
            param=param,
            **details,
        )
    )


def status_of(body: ErrorResponse) -> int:
    """The status of an error's response."""
    code = body.error.code
    return code if isinstance(code, int) else _WORD_STATUS[code]


def respond(body: ErrorResponse, headers: dict[str, str] | None = None) -> Response:
    """The response with an error's body and status."""
    return Response(encode(body), status_of(body), headers, media_type="application/json")


async def _error(_request: Request, error: Exception) -> Response:
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, QueueFull) else None
    return respond(describe(error), headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and (shorter := _without_slash(request)):
        return RedirectResponse(shorter)
    if isinstance(error.__cause__, RequestError):  # FastAPI wraps errors of parsing a body
        return respond(describe(error.__cause__))
    if error.status_code in (404, 405) and (missing := _missing_model(request, error.status_code)):
        return respond(fault(404, f"{request.url.path}: {missing}"))
    headers = dict(error.headers or {})
    if headers.get("Allow") == "GET":
        headers["Allow"] = "GET, HEAD"  # see middleware/head_requests.py
    messages = {
        404: f"{request.url.path}: no such route or model; {_similar_route(request)}",
        405: _wrong_method(request, headers.get("Allow")),
    }
    message = messages.get(error.status_code, error.detail)
    return respond(fault(error.status_code, message), headers)


def _missing_model(request: Request, status: int) -> str:
    """The model that the route of a request needs; "" if it needs none.

    With status 405 there is a route of the path, with another method.
    """
    matches = (Match.FULL,) if status == 405 else (Match.FULL, Match.PARTIAL)
    for route, needed in request.app.state.missing_routes:
        if route.matches(request.scope)[0] in matches:
            return f"this server has no model for this route, which needs {needed}; serve one"
    return ""


def _similar_route(request: Request) -> str:
    prefix = request.scope.get("root_path", "")
    paths = [f"{prefix}{getattr(route, 'path', '')}" for route in request.app.router.routes]
    near = get_close_matches(request.url.path, paths, n=1, cutoff=_SIMILAR)
    return f"did you mean {near[0]}?" if near else f"{prefix}/docs lists the routes"


def _wrong_method(request: Request, allowed: str | None) -> str:
    """What is wrong with the method of a request. A browser sends OPTIONS for a page (CORS)."""
    origin = request.headers.get("origin")
    if request.method == "OPTIONS" and origin:
        return f"{request.url.path}: pages of {origin} are not allowed; set --cors-origins {origin}"
    return f"{request.url.path}: got {request.method}, expected {allowed}"


def _without_slash(request: Request) -> str:
    """The address of the route whose path has no slash at the end; "" if there is none.

    It is relative: a proxy may have another host and a prefix.
    """
    scope, path = request.scope, request.scope["raw_path"].decode("ascii")
    shorter = path.removesuffix("/")
    shortened = {**scope, "path": scope["path"].removesuffix("/")}
    routes = request.app.router.routes
    if (
        shorter.endswith("/")
        or shorter == path
        or all(route.matches(shortened)[0] is Match.NONE for route in routes)
    ):
        return ""
    query = f"?{request.url.query}" if request.url.query else ""
    return f"../{shorter.rpartition('/')[2]}{query}"


async def _validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = error.errors()
    if problems[0]["type"] == "json_invalid":
        reason = f"{problems[0]['ctx']['error']} at character {problems[0]['loc'][-1]}"
        return respond(fault(400, f"body: not JSON: {reason}"))
    body = error.body
    if isinstance(body, FormData):
        body = {name: body.getlist(name) if name.endswith("[]") else body[name] for name in body}
    return respond(describe(invalid_field(problems, body)))
