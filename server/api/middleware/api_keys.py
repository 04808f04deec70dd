"""ASGI middleware: require an API key.

A client sends its key as `Authorization: Bearer KEY`, or in one of the headers that llama-server,
Google and Azure have for it. A key in the query is refused: proxies write the query to their logs.
A request that the server sends to itself names the owner of a key in its state.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, QueryParams

from hearthd.server.api.http_errors import fault, respond

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

GOOGLE_HEADER = "X-Goog-Api-Key"  # every client of Gemini's API sends it
_HEADERS = ("X-Api-Key", GOOGLE_HEADER, "Api-Key")
_IN_QUERY = "key"  # of Gemini's API
OWNER = "owner"  # in the state of a request's scope, which no client can set


class ApiKeys:
    """Answer 401 to requests without one of the keys, except those to the open paths."""

    def __init__(self, app: ASGIApp, keys: Iterable[str], open_paths: Collection[str]) -> None:
        self._app = app
        # Digests have equal lengths, so the time of a comparison reveals nothing.
        self._digests = tuple(_digest(key) for key in keys)
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if (
            scope["type"] == "http"
            and not (scope["path"] in self._open_paths and not _reloads(scope))
            and not self._accepts(_owner(scope))
        ):
            refusal = respond(fault(401, _reason(scope)), {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _accepts(self, owner: str) -> bool:
        sent = bytes.fromhex(owner)
        # Compare every key, so that the time does not reveal which one matches.
        return sum(hmac.compare_digest(digest, sent) for digest in self._digests) > 0


def _reason(scope: Scope) -> str:
    if _IN_QUERY in QueryParams(scope["query_string"]):
        return (
            "API key: not accepted in the query, which proxies write to their logs; send "
            f"{GOOGLE_HEADER}: KEY"
        )
    return "API key: missing or unknown; send Authorization: Bearer KEY"


def _reloads(scope: Scope) -> bool:
    """Whether the query, as routes decode it, asks to look for bundles again."""
    return "reload" in QueryParams(scope["query_string"])


def sent_key(headers: Headers) -> str:
    """The digest of the key in the headers of a request."""
    return _digest(_key(headers)).hex()


def owner_of(request: Request) -> str:
    """The owner of what a request stores: its key, or "" for all clients of a server without."""
    return _owner(request.scope) if request.app.state.has_keys else ""


def _owner(scope: Scope) -> str:
    internal: str | None = scope.get("state", {}).get(OWNER)
    return sent_key(Headers(scope=scope)) if internal is None else internal


def _key(headers: Headers) -> str:
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return next((headers[name] for name in _HEADERS if name in headers), "")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
