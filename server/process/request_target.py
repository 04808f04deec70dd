"""Absolute request targets: RFC 9112, section 3.2.2."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

if TYPE_CHECKING:
    from uvicorn._types import HTTPScope

# Of the part before the query. User information in the authority means nothing to a server. A URL
# without a host is not valid (RFC 9110, section 4.2).
_ABSOLUTE = re.compile(rb"https?://(?:[^/@]*@)?([^/:@][^/@]*)(.*)", re.IGNORECASE | re.DOTALL)


def use_origin_form(scope: HTTPScope) -> None:
    """Give a request with an absolute target, as proxies send it, the path and host in it.

    A server must accept it, and ignore the header Host. Other targets without a path are answered
    by server/api/middleware/request_targets.py.
    """
    match = _ABSOLUTE.fullmatch(scope["raw_path"] or b"")
    if match is None:
        return
    host, raw_path = match.groups()
    scope["raw_path"] = raw_path or b"/"
    scope["path"] = unquote(scope["raw_path"].decode("ascii"))
    headers = cast("list[tuple[bytes, bytes]]", scope["headers"])
    headers[:] = [(b"host", host), *(header for header in headers if header[0] != b"host")]
