"""The chat page: the files of this folder, at `/` and `/web/PATH`.

The files are read once and sent from memory. Each has a route, so a request's path is never used as
a file name. The page uses the HTTP API like any other client.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FOLDER = Path(__file__).parent
MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
# The path of every file.
FILES = {
    "/" if path.name == "index.html" else f"/web/{path.relative_to(FOLDER).as_posix()}": path
    for path in sorted(FOLDER.rglob("*"))
    if path.suffix in MEDIA_TYPES
}
# Allow scripts, styles and requests for this server only, and no HTML made from text.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)


def router() -> APIRouter:
    """Routes for the page's files, which are not part of the OpenAPI document."""
    routes = APIRouter(include_in_schema=False)
    for address, path in FILES.items():
        routes.add_api_route(address, _sender(path), methods=["GET", "HEAD"])
    return routes


def _sender(path: Path) -> Callable[[Request], Awaitable[Response]]:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {
        "Cache-Control": "no-cache",  # the browser asks each time and gets 304 if nothing changed
        "Content-Security-Policy": POLICY,
        "ETag": etag,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }

    async def send(request: Request) -> Response:
        known = [tag.strip() for tag in request.headers.get("If-None-Match", "").split(",")]
        if etag in (tag.removeprefix("W/") for tag in known) or known == ["*"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=MEDIA_TYPES[path.suffix])

    return send
