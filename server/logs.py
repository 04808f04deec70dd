"""Logs on stderr, as text or JSON lines, with fields of the current request.

It knows no HTTP. The access log creates the record of a request, and the layers below add to it.
Prompts, answers and API keys are never logged.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import sys
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import override

from hearthd.text.control_characters import escape_controls

LogFormat = Literal["text", "json"]


@dataclass(kw_only=True)
class RequestRecord:
    """One request for the access log: its id, model and error, and its answers' token counts.

    An error names models, ids and fields, and not the value that was rejected, which may be text
    of a user.
    """

    request_id: str
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str = ""


current_request: ContextVar[RequestRecord | None] = ContextVar("current_request", default=None)


def request_id() -> str | None:
    """The id of the current request, or None outside of a request."""
    record = current_request.get()
    return record.request_id if record else None


def count_tokens(prompt: int, completion: int = 0) -> None:
    """Add the tokens of an answer to the current request's, if there is one."""
    if record := current_request.get():
        record.prompt_tokens += prompt
        record.completion_tokens += completion


def configure(level: str, log_format: LogFormat) -> None:
    """Send all logs of the process, including uvicorn's, to stderr in one format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level != "debug":  # its info lines repeat what Hearth prints
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        # Its warnings are about forms of clients: any of them could fill the log.
        logging.getLogger("python_multipart").setLevel(logging.ERROR)


def report_crashes() -> None:
    """If a signal such as SIGBUS ends the process, print its name and the stacks on stderr."""
    if sys.stderr is not None and not faulthandler.is_enabled():
        faulthandler.enable()


def announcement(log_format: LogFormat, message: str, *, level: int, **fields: object) -> str:
    """A line for stdout or stderr that is not a log line: the message, or one JSON object."""
    if log_format == "text":
        return escape_controls(message)
    name, level_name = __name__.partition(".")[0], logging.getLevelName(level)
    entry = {"name": name, "levelname": level_name, "msg": message, "fields": fields}
    return _Json().format(logging.makeLogRecord(entry))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a log call, `extra={"fields": {...}}`, and the request's id."""
    fields: dict[str, Any] = getattr(record, "fields", {})
    id_ = request_id()
    return {**fields, "request_id": id_} if id_ else fields


def _timestamp(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def _word(value: object) -> str:
    """A value of a field; one with spaces is quoted."""
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text else text


class _Text(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO server.app: POST /generate status=200 ms=12.1`."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_word(value)}" for name, value in _fields(record).items())
        line = (
            f"{_timestamp(record)} {record.levelname} {record.name}: {record.getMessage()}{fields}"
        )
        # Input from a client must not start a new log line, or control the terminal.
        if not line.isprintable():
            line = "".join(map(_printable, line))
        if record.exc_info:
            line += f"\n{escape_controls(self.formatException(record.exc_info))}"
        return line


class _Json(logging.Formatter):
    """One object per line: time, level, logger, message, the fields, and a traceback if any."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
