"""ASGI middleware: the paths of llama-server that are other names of a route."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

ALIASES = {
    "/v1/health": "/health",
    "/models": "/v1/models",
    "/chat/completions": "/v1/chat/completions",
    "/responses": "/v1/responses",
    "/responses/compact": "/v1/responses/compact",
    "/chat/completions/input_tokens": "/v1/chat/completions/input_tokens",
    "/responses/input_tokens": "/v1/responses/input_tokens",
    "/completions": "/completion",
    "/embeddings": "/embedding",
    "/audio/transcriptions": "/v1/audio/transcriptions",
    "/audio/translations": "/v1/audio/translations",
    "/rerank": "/v1/rerank",
    "/reranking": "/v1/rerank",
    "/v1/reranking": "/v1/rerank",
    "/v2/rerank": "/v1/rerank",
}


class PathAliases:
    """Give a request to an alias the path of its route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and (path := ALIASES.get(scope["path"])):
            # In place: the access log reads the route from this object.
            scope["path"], scope["raw_path"] = path, path.encode()
        await self._app(scope, receive, send)
