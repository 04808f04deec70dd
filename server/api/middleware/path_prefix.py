"""ASGI middleware: the prefix of every path, with which a proxy tells this server from others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from hearthd.server.api.http_errors import fault, respond

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class PathPrefix:
    """Remove the prefix from the path of a request; paths without it are 404."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, prefix = scope["path"], self._prefix
        if path == prefix:  # links of the pages are relative to the last slash
            await RedirectResponse(f"{prefix}/")(scope, receive, send)
        elif path.startswith(f"{prefix}/"):
            # In place: the access log reads the route from this object.
            scope["path"] = path.removeprefix(prefix)
            scope["raw_path"] = scope["raw_path"].removeprefix(prefix.encode())
            await self._app(scope, receive, send)
        else:
            missing = fault(404, f"{path}: no such route: paths begin with {prefix}/")
            await respond(missing)(scope, receive, send)
