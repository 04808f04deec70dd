"""H11's parser with limits on what a request costs, and the answers to bytes that are not HTTP.

A chunk of a body or a header takes a few bytes and 20 µs. So that a client who sends many stops
no other, a head is limited in size, and a turn of the event loop in events.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11
from typing_extensions import override
from uvicorn.protocols.http.flow_control import FlowControl

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_HEAD = 2**14  # bytes of a request's head, and of a line between chunks
_TURN = 100  # events
_MAX_SHOWN = 200  # characters of an error, which may quote the request
_END = re.compile(rb"\n\r?\n")  # of a head
_TYPES = {HTTPStatus.NOT_IMPLEMENTED: "not_supported_error"}


class RequestParser(h11.Connection):
    """The server's side of a connection. `is_behind` says that the turn ended before the input."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD)
        self.is_behind = False
        self._events = 0  # of this turn

    def begin_turn(self) -> None:
        """Allow further events."""
        self.is_behind = False
        self._events = 0

    @override
    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """As h11; NEED_DATA also when the turn ends."""
        if self._events == _TURN:
            self.is_behind = True
            return h11.NEED_DATA
        self._events += 1
        # H11 accepts a head of any size that has arrived completely.
        if self.their_state is h11.IDLE and len(self._receive_buffer) > MAX_HEAD:
            received, _ = self.trailing_data
            if _END.search(received, 0, MAX_HEAD) is None:
                self._process_error(self.their_role)
                raise h11.RemoteProtocolError("head too long", error_status_hint=431)
        return super().next_event()


class TurnControl(FlowControl):
    """Reads nothing while the parser is behind, whatever the application asks for."""

    _is_held = False

    def hold(self) -> None:
        """Stop reading."""
        self._is_held = True
        self._transport.pause_reading()

    def release(self) -> None:
        """Read again, unless the application paused it."""
        self._is_held = False
        if not self.read_paused:
            self._transport.resume_reading()

    @override
    def resume_reading(self) -> None:
        """Called when the application wants more of a body."""
        if self._is_held:
            self.read_paused = False
        else:
            super().resume_reading()


def error_response(error: h11.RemoteProtocolError) -> Iterator[h11.Event]:
    """The response: its status is what the parser proposes, its body like that of other errors."""
    status = HTTPStatus(error.error_status_hint)
    message = f"invalid HTTP: {error}"
    if status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        message = f"headers: too large: expected at most {MAX_HEAD} bytes; send smaller headers"
    kind = _TYPES.get(status, "invalid_request_error")
    detail = {"code": status, "type": kind, "message": message[:_MAX_SHOWN], "param": None}
    body = json.dumps({"error": detail}).encode()
    headers = [
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        ("connection", "close"),
    ]
    yield h11.Response(status_code=status, headers=headers, reason=status.phrase)
    yield h11.Data(data=body)
    yield h11.EndOfMessage()
