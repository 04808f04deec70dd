"""The outermost ASGI middleware: request ids, the access log, request counts, unexpected errors.

A client's X-Request-Id is kept if it has at most 64 letters, digits and `._:-`.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders

from hearthd.server.api.http_errors import describe, respond
from hearthd.server.fault_isolation import STOPS, contained
from hearthd.server.logs import RequestRecord, current_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

HEADER = "X-Request-Id"
_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_FIRST_ERROR = 400
_CLIENT_CLOSED_REQUEST = 499  # nginx's code


class Access:
    """Call `count` once per request, with the route's path (or "none") and the status.

    Requests are counted and logged before the end of the response is sent: a client that has all of
    it finds the request in the metrics and in the log.

    Requests for `quiet` paths that succeed are logged at the level debug.
    """

    def __init__(
        self, app: ASGIApp, count: Callable[[str, int], None], quiet: frozenset[str] = frozenset()
    ) -> None:
        self._app = app
        self._count = count
        self._quiet = quiet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        record = RequestRecord(request_id=_request_id(Headers(scope=scope).get(HEADER, "")))
        token = current_request.set(record)
        status: int | None = None
        is_recorded = False

        def record_end() -> None:
            nonlocal is_recorded
            if not is_recorded:
                is_recorded = True
                with contained("recording a request"):
                    milliseconds = 1e3 * (time.monotonic() - began)
                    self._record(scope, record, status or _CLIENT_CLOSED_REQUEST, milliseconds)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = record.request_id
            elif not message.get("more_body"):
                record_end()
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except STOPS:
            raise
        except BaseException as error:
            log.exception("internal error")
            if status is None:
                await respond(describe(error))(scope, receive, send_with_id)
        finally:
            record_end()  # of a response without an end
            current_request.reset(token)

    def _record(
        self, scope: Scope, record: RequestRecord, status: int, milliseconds: float
    ) -> None:
        self._count(getattr(scope.get("route"), "path", "none"), status)
        is_quiet = scope["path"] in self._quiet and status < _FIRST_ERROR
        level = logging.DEBUG if is_quiet else logging.INFO
        _write_line(level, scope, record, status, milliseconds)


def _request_id(header: str) -> str:
    return header if _ACCEPTED_ID.fullmatch(header) else uuid.uuid4().hex


def _write_line(
    level: int, scope: Scope, record: RequestRecord, status: int, milliseconds: float
) -> None:
    # Uvicorn has replaced the address of a trusted proxy by the client's.
    fields: dict[str, object] = {"client": scope["client"][0]} if scope.get("client") else {}
    if record.model:
        fields["model"] = record.model
    fields |= {"status": status, "ms": round(milliseconds, 1)}
    if record.prompt_tokens:
        fields["prompt_tokens"] = record.prompt_tokens
        fields["completion_tokens"] = record.completion_tokens
    if record.error:
        fields["error"] = record.error
    # Without the query, which may hold secrets. A space would end the path, and begin a field.
    path = scope["path"].replace(" ", "%20")
    log.log(level, "%s %s", scope["method"], path, extra={"fields": fields})
