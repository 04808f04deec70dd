"""The log's formats, text and JSON."""

from __future__ import annotations

import contextlib
import json
import logging
from typing import TYPE_CHECKING, Any

from hearthd.server import logs

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def configured(form: logs.LogFormat) -> Iterator[logging.Handler]:
    """The handler of a server's logs, while they are configured."""
    root = logging.getLogger()
    level, before = root.level, root.handlers[:]
    try:
        logs.configure("info", form)
        yield root.handlers[0]
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        for name in ("uvicorn.error", "python_multipart"):
            logging.getLogger(name).setLevel(logging.NOTSET)


def formatted(form: logs.LogFormat, message: str, **extra: Any) -> str:
    """The line that this form of log makes of a message."""
    record = logging.makeLogRecord({"msg": message, "name": "n", "levelname": "INFO", **extra})
    with configured(form) as handler:
        return handler.format(record)


def test_a_line_of_the_log_has_no_control_characters() -> None:
    written = formatted("text", "GET /\x00\x1b[2J\x85\u2028\u202e\xe9", created=0.0, msecs=0.0)
    assert written.endswith("n: GET /\\x00\\x1b[2J\\x85\\u2028\\u202e\xe9")


def test_a_traceback_in_the_log_has_no_control_characters() -> None:
    error = ValueError("\x1b[2J")
    written = formatted("text", "failed", exc_info=(ValueError, error, None))
    assert written.endswith("\nValueError: \\x1b[2J")


def test_damaged_forms_fill_no_log() -> None:
    parser = logging.getLogger("python_multipart.multipart")
    with configured("text"):
        assert not parser.isEnabledFor(logging.WARNING)
    assert parser.isEnabledFor(logging.WARNING)


def test_the_log_has_a_text_and_a_json_format() -> None:
    token = logs.current_request.set(logs.RequestRecord(request_id="id"))
    try:
        text = formatted("text", "one\nline", fields={"status": 200}, created=0.0, msecs=7.0)
        entry = json.loads(formatted("json", "one\nline", fields={"status": 200}))
    finally:
        logs.current_request.reset(token)
    assert text == "1970-01-01T00:00:00.007Z INFO n: one\\nline status=200 request_id=id"
    assert (entry["message"], entry["status"], entry["request_id"]) == ("one\nline", 200, "id")
    assert (entry["level"], entry["logger"]) == ("info", "n")
    assert "request_id" not in json.loads(formatted("json", "x"))
