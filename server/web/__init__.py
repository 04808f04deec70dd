"""The chat page at `/`, the description of the API at `/docs`, and their files at `/web/PATH`.

Each file has a route, so a request's path is never used as a file name. A file is read at its first
request and then sent from memory. The pages use the HTTP API like any other client, and all their
links are relative, so they work behind a proxy that adds a prefix to the paths.
"""

from __future__ import annotations

import functools
import hashlib
import re
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
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
PAGES = {FOLDER / "index.html": "/", FOLDER / "docs.html": "/docs"}
# The path of every file.
FILES = {
    PAGES.get(path, f"/web/{path.relative_to(FOLDER).as_posix()}"): path
    for path in sorted(FOLDER.rglob("*"))
    if path.suffix in MEDIA_TYPES
}
_DOCS = re.compile(r"/docs|/web/(docs|icon|vendor/swagger-ui/).*")
# Allow scripts, styles and requests for this server only, pictures in styles, and attached files.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data:",
        "media-src data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
# The chat page requests MCP servers that its user adds. Only the browser knows them. Its first
# script narrows this to them, before any other script runs.
MCP_SERVERS = "connect-src 'self' http: https:"
# Swagger UI makes HTML from the descriptions in the server's own document, and no other page may.
NO_HTML = "require-trusted-types-for 'script'; trusted-types documents"


@functools.cache
def router(*, chat: bool) -> APIRouter:
    """Routes for the files of the pages, which are not part of the OpenAPI document.

    `chat` says whether the chat page is among them.
    """
    routes = APIRouter(include_in_schema=False)
    for address, path in FILES.items():
        if chat or _DOCS.fullmatch(address):
            routes.add_api_route(address, _sender(path))
    return routes


def _sender(path: Path) -> Callable[[Request], Awaitable[Response]]:
    read = functools.cache(path.read_bytes)
    policy = POLICY if path.name == "docs.html" else f"{POLICY}; {NO_HTML}"
    if path.name == "index.html":
        policy = f"{policy}; {MCP_SERVERS}"

    async def send(request: Request) -> Response:
        content = read()
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {
            "Cache-Control": "no-cache",  # the browser asks each time; 304 if nothing changed
            "Content-Security-Policy": policy,
            "ETag": etag,
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        known = [tag.strip() for tag in request.headers.get("If-None-Match", "").split(",")]
        if etag in (tag.removeprefix("W/") for tag in known) or known == ["*"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=MEDIA_TYPES[path.suffix])

    return send
