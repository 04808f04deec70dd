"""ASGI middleware: paths that are other names of a route: of llama-server, and of Gemini's API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from hearthd.server.api.middleware.api_keys import GOOGLE_HEADER

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


_OLDER, _NEWER = "/v1", "/v1beta"  # versions of Gemini's API


class PathAliases:
    """Give a request to an alias the path of its route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            # In place: the access log reads the route from this object.
            if path := ALIASES.get(scope["path"]):
                scope["path"], scope["raw_path"] = path, path.encode()
            elif _is_geminis(scope):
                for name, older, newer in (
                    ("path", _OLDER, _NEWER),
                    ("raw_path", _OLDER.encode(), _NEWER.encode()),
                ):
                    scope[name] = newer + scope[name].removeprefix(older)
        await self._app(scope, receive, send)


def _is_geminis(scope: Scope) -> bool:
    """Whether a request to /v1/models, which OpenAI's API has too, is in the form of Gemini's.

    It comes from a client of Gemini's API, or calls a method, as in models/NAME:generateContent.
    """
    path: str = scope["path"]
    if path != f"{_OLDER}/models" and not path.startswith(f"{_OLDER}/models/"):
        return False
    calls = scope["method"] == "POST" and ":" in path
    return calls or GOOGLE_HEADER in Headers(scope=scope)
