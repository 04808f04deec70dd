"""Logs on stderr, as text or as JSON lines, and what is noted of the request being answered.

It knows no HTTP: whoever takes a request opens its note, whoever learns something writes it there.
Neither a prompt nor an answer nor a key is ever noted.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

LogFormat = Literal["text", "json"]


@dataclass(kw_only=True)
class Note:
    """One request: its id, and the tokens that its completions have read and written."""

    request_id: str
    prompt_tokens: int = 0
    completion_tokens: int = 0


current_note: ContextVar[Note | None] = ContextVar("current_note", default=None)


def request_id() -> str | None:
    """The id of the request that is being answered here, if one is."""
    note = current_note.get()
    return note.request_id if note else None


def configure(level: str, form: LogFormat) -> None:
    """Send every log of the process, uvicorn's too, to stderr in one form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level != "debug":  # its info is about processes, not about requests
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What was logged as `extra={"fields": {...}}`, and the request's id."""
    fields: dict[str, Any] = getattr(record, "fields", {})
    id_ = request_id()
    return {**fields, "request_id": id_} if id_ else fields


def _moment(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


class _Text(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO server.app: POST /generate status=200 ms=12.1`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = f"{_moment(record)} {record.levelname} {record.name}: {record.getMessage()}{fields}"
        # A line break that a client put in stays on the line.
        line = line.replace("\r", "\\r").replace("\n", "\\n")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    """One object a line: time, level, logger, message, the fields, and the traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
