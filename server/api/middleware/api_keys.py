"""API keys: who may ask. An ASGI middleware.

A key comes as `Authorization: Bearer KEY`, or as llama-server takes it too, `X-Api-Key: KEY`.
Which paths are open without one is not decided here.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from server.api.http_errors import fault, respond

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send


class ApiKeys:
    """Lets requests pass that carry one of the keys, or go to one of the open paths."""

    def __init__(self, app: ASGIApp, keys: Iterable[str], open_paths: Collection[str]) -> None:
        self._app = app
        # Of digests, which are equally long, a comparison tells nothing by its time.
        self._digests = tuple(_digest(key) for key in keys)
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if (
            scope["type"] == "http"
            and scope["path"] not in self._open_paths
            and not self._known(_key(Headers(scope=scope)))
        ):
            refusal = respond(
                fault(401, "wanted an API key of this server, as Authorization: Bearer KEY"),
                {"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _known(self, key: str) -> bool:
        given = _digest(key)
        # Every key is compared, whichever fits.
        return sum(hmac.compare_digest(digest, given) for digest in self._digests) > 0


def _key(headers: Headers) -> str:
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("X-Api-Key", "")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
