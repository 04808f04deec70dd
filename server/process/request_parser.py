"""H11's parser with limits on what a request costs, and the answers to bytes that are not HTTP.

A chunk of a body or a header takes a few bytes and 20 µs. So that a client who sends many stops
no other, a head is limited in size and in headers, and a turn of the event loop in events. H11's
regular expressions take quadratic time to reject some lines of spaces: these are rejected first.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11
from h11._receivebuffer import ReceiveBuffer
from typing_extensions import override
from uvicorn.protocols.http.flow_control import FlowControl

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_HEAD = 2**14  # bytes of a request's head, of its trailers, and of a line between chunks
MAX_HEADERS = 100  # as Apache
_TURN = 100  # events
_MAX_SHOWN = 200  # characters of an error, which may quote the request
_CONTROL = re.compile(rb"[\0\v\f\r]")  # what h11 allows nowhere in a line
_OTHER_VERSION = re.compile(rb"\S+ \S+ (HTTP/[02-9]\.\d)")  # of a request line
_TLS_HANDSHAKE = b"\x16\x03"
_TYPES = {HTTPStatus.NOT_IMPLEMENTED: "not_supported_error"}


class _LimitedBuffer(ReceiveBuffer):
    """What was received. H11 takes lines from it: of a head, of trailers, and between chunks."""

    @override
    def maybe_extract_lines(self) -> list[bytearray] | None:
        """The lines of a head or of trailers, if they have arrived completely."""
        if self._data.startswith(_TLS_HANDSHAKE):
            raise h11.LocalProtocolError(
                "got TLS, expected plain HTTP; write http:// in place of https:// in the URL"
            )
        size = len(self)
        lines = super().maybe_extract_lines()
        if lines is None:  # h11 limits what is incomplete
            return None
        if size - len(self) > MAX_HEAD or len(lines) > MAX_HEADERS + 1:
            raise h11.LocalProtocolError("head too long", error_status_hint=431)
        if any(_CONTROL.search(line) for line in lines):
            raise h11.LocalProtocolError("control character in a line")
        if lines and (other := _OTHER_VERSION.fullmatch(lines[0])):
            raise h11.LocalProtocolError(
                f"got {other[1].decode()}, expected HTTP/1.1; set the client to HTTP/1.1",
                error_status_hint=HTTPStatus.HTTP_VERSION_NOT_SUPPORTED,
            )
        return lines

    @override
    def maybe_extract_next_line(self) -> bytearray | None:
        """The line before a chunk, with its end, if it has arrived completely."""
        line = super().maybe_extract_next_line()
        if line is not None and line.index(b"\n") < len(line) - 1:
            raise h11.LocalProtocolError("newline in a chunk header")
        return line


class RequestParser(h11.Connection):
    """The server's side of a connection. `is_behind` says that the turn ended before the input."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD)
        self._receive_buffer = _LimitedBuffer()
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
    """The response, with the status that the parser proposes and a body in OpenAI's form."""
    status = HTTPStatus(error.error_status_hint)
    message = f"invalid HTTP: {error}"
    if status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        message = (
            f"headers: too many or too large: expected at most {MAX_HEADERS} headers and "
            f"{MAX_HEAD} bytes; send fewer or smaller headers"
        )
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
