"""Request bodies as JSON, in which no object has a key twice, and fields without effect in them.

Python's parser keeps the last value of a repeated key, and other parsers keep the first. So a proxy
that checks requests could see other values than the server uses.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from typing_extensions import override

from hearthd.bundle.parsing.strict_json import repeated_key
from hearthd.server.api import inert_fields
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fastapi import Response

# To check 60,000 messages stopped the event loop for 0.7 s.
MAX_OBJECTS = 20_000
_TOO_MANY = f"body: too many objects: expected at most {MAX_OBJECTS}; send a smaller request"


def parse_json(body: bytes) -> Any:
    """The value; raises InvalidRequest for a repeated key, and what json.loads raises.

    More than MAX_OBJECTS are an HTTPException.
    """
    count = itertools.count(1)

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if next(count) > MAX_OBJECTS:
            raise HTTPException(413, _TOO_MANY)
        return _object(pairs)

    return json.loads(body, object_pairs_hook=members)


class JsonRoute(APIRoute):
    """A route that reads its JSON body with `parse_json`, whatever its content type: `curl -d`.

    A web page of another origin can send such a body without asking, so the type of a body must be
    JSON if a browser sent it: with the header Origin or Sec-Fetch-Site.

    Unless the application is strict, ignored fields are listed in the header `Warning`. It also
    says how many tokens or messages of a prompt were dropped, and that an answer was not stored.
    """

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Called by FastAPI."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            if not any(name in request.headers for name in ("Origin", "Sec-Fetch-Site")):
                headers = [(k, v) for k, v in request.scope["headers"] if k != b"content-type"]
                request.scope["headers"] = [*headers, (b"content-type", b"application/json")]
            body = _JsonRequest(request.scope, request.receive)
            with inert_fields.ignoring(strict=request.app.state.strict_fields) as ignored:
                response = await handle(body)
            warnings = []
            if ignored:
                warnings.append(inert_fields.warning(await body.json(), ignored))
            if dropped := getattr(request.state, "dropped_tokens", 0):
                warnings.append(_dropped("prompt", f"{dropped} tokens in the middle"))
            if dropped := getattr(request.state, "dropped_messages", 0):
                warnings.append(_dropped("conversation", f"the oldest {dropped} messages"))
            if reason := getattr(request.state, "not_stored", ""):
                warnings.append(f'299 hearth "response: {reason}"')
            if warnings:
                response.headers["Warning"] = ", ".join(warnings)
            return response

        return handle_json


def _dropped(field: str, part: str) -> str:
    """The `Warning` header (RFC 7234) for a prompt that lost a part."""
    return f'299 hearth "{field}: {part} were dropped to fit the context"'


class _JsonRequest(Request):
    @override
    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = parse_json(await self.body())
        return self._json


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        key, count = repeated_key(pairs)
        raise InvalidRequest(field=key, got=f"{count} values", expected="one value")
    return members
