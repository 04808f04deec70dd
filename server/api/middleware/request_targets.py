"""ASGI middleware: requests whose target is not a path (RFC 9112, section 3.2).

The server has already replaced an absolute target by its path: server/process/request_target.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from hearthd.server.api.http_errors import fault, respond

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_METHODS = "GET, HEAD, POST, DELETE, OPTIONS"


class RequestTargets:
    """Answer `OPTIONS *` with the methods of the server, and other targets with an error."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        response = _answer(scope) if scope["type"] == "http" else None
        await (response or self._app)(scope, receive, send)


def _answer(scope: Scope) -> Response | None:
    """The response to a request without a path; None if it has one."""
    method, target = scope["method"], scope["raw_path"]
    if method == "CONNECT":
        return respond(fault(501, "CONNECT: not supported, because this server is not a proxy"))
    if target.startswith(b"/"):
        return None
    if (method, target) == ("OPTIONS", b"*"):
        return Response(headers={"Allow": _METHODS})
    got = target.decode("ascii", "replace")
    return respond(
        fault(400, f"request target: got {method} {got!r}, expected a path that begins with /")
    )
