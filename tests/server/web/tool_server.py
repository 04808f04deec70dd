"""A real MCP server of the `mcp` package, over streamable HTTP: tools that add, and draw."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvicorn
from mcp.server.mcpserver import Image, MCPServer
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from tests.patience import PATIENCE
from tests.server.images.image_service import WIDE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Receive, Scope, Send


PICTURE = base64.b64decode(WIDE)


def _tools(name: str) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer(name)

    @server.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return f"{a} + {b} = {a + b}"

    @server.tool()
    def draw() -> list[str | Image]:
        """Draw two pictures; no browser reads the second one."""
        return ["drawn", Image(data=PICTURE, format="png"), Image(data=b"no", format="png")]

    return server


@dataclass
class ToolServer:
    """The server's address, and what it was asked.

    `/mcp` answers with streams, `/json` with JSON, and no other path admits a page of another
    origin. While `forgets` is set, a request in a session is answered as one that has ended.
    """

    url: str
    headers: list[dict[str, str]] = field(default_factory=list)
    forgets: bool = False

    def noting(self, app: ASGIApp) -> ASGIApp:
        """The application behind a note of each request's headers."""

        async def note(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["method"] == "POST":
                self.headers.append({k.decode(): v.decode() for k, v in scope["headers"]})
                if self.forgets and "mcp-session-id" in self.headers[-1]:
                    self.forgets = False
                    await Response(status_code=404)(scope, receive, send)
                    return
            await app(scope, receive, send)

        return note


@contextlib.contextmanager
def tool_server() -> Iterator[ToolServer]:
    """The server, in a thread, as long as the block."""
    app = _tools("streams").streamable_http_app()
    answers = _tools("answers").streamable_http_app(
        streamable_http_path="/json", json_response=True
    )

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        await (answers if scope.get("path") == "/json" else app)(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = ToolServer(f"http://127.0.0.1:{bound.getsockname()[1]}")
        admitting = CORSMiddleware(
            server.noting(routed),
            allow_origin_regex="http://127.0.0.1:.*",
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["Mcp-Session-Id"],
        )

        async def entrance(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["path"] not in ("/mcp", "/json"):
                await Response(status_code=404)(scope, receive, send)
                return
            await admitting(scope, receive, send)

        # The lifespan of an application with sessions starts the tasks of those.
        app.router.lifespan_context = _both(app.router, answers.router)
        with serving(entrance, bound):
            yield server


@contextlib.contextmanager
def serving(app: ASGIApp, bound: socket.socket) -> Iterator[None]:
    """Serve an application in a thread, as long as the block."""
    running = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=running.run, args=([bound],))
    thread.start()
    try:
        yield
    finally:
        running.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def _both(first: Any, second: Any) -> Any:
    lifespans = (first.lifespan_context, second.lifespan_context)

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> Any:
        async with lifespans[0](app), lifespans[1](app):
            yield

    return lifespan
