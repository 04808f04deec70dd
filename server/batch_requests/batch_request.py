"""A request of a batch, the reply to it, and what answers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class BatchRequest:
    """A line of the file of requests; `body` is JSON."""

    custom_id: str
    url: str
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The answer to a request; `body` is JSON, `retry_after` in seconds."""

    status: int
    body: bytes
    request_id: str = ""
    retry_after: float | None = None


def reply_of(status: int, body: bytes, headers: Mapping[str, Any]) -> Reply:
    """The reply with this body and these headers, whose names are lower case."""
    try:
        retry_after = float(headers["retry-after"])
    except (KeyError, ValueError):
        retry_after = None
    return Reply(
        status=status,
        body=body,
        request_id=headers.get("x-request-id", ""),
        retry_after=retry_after,
    )


class CannotReach(Exception):
    """The server of a batch does not answer."""


class BatchTarget(Protocol):
    """Answers requests; `parallel` of them keep it busy.

    `answers_when_unavailable`: whether a reply 503 that stays is the answer to its request. It ends
    the batch otherwise.
    """

    parallel: int
    answers_when_unavailable: bool = False

    async def post(self, request: BatchRequest) -> Reply:
        """The reply to a request; raises CannotReach."""
