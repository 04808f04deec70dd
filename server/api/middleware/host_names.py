"""ASGI middleware: reject names of the public internet on addresses of this machine.

Any web page can let its own name lead to 127.0.0.1 (DNS rebinding). The browser then takes the
server for the page's own site, and no CORS keeps the page from reading answers. Only the header
Host tells, which no page can set. Ollama has the same names.
"""

from __future__ import annotations

import contextlib
import ipaddress
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from hearthd.server.api.http_errors import fault, respond

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_LOCAL = ("localhost", "local", "internal")  # the last labels of names that nobody can buy
_MAX_SHOWN = 80  # characters of a name


class HostNames:
    """Answer 403 to a request to a loopback address whose Host may be a public name.

    For a server without API keys, which no page has.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and _is_loopback(scope):
            host = Headers(scope=scope).get("Host", "")
            if not _is_local(host):
                await respond(fault(403, _message(host)))(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_loopback(scope: Scope) -> bool:
    """Whether the client has connected to a loopback address, not to a file or a network."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address((scope.get("server") or ("",))[0])
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    return False


def _is_local(host: str) -> bool:
    """Whether a header Host has an address, or a name that is not in the public DNS."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        return True
    labels = name.lower().removesuffix(".").split(".")
    return len(labels) == 1 or labels[-1] in _LOCAL


def _message(host: str) -> str:
    return (
        f"Host: got {host[:_MAX_SHOWN]!r}, expected localhost or an address, because the server "
        "has no API keys and web pages could use it by such a name; set --api-key-file, or let "
        "the proxy send Host: 127.0.0.1"
    )
