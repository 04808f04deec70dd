"""The two files of a batch, in OpenAI's format: one JSON object per line.

    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
    {"id": "...", "custom_id": "a", "response": {"status_code": 200, "request_id": "...",
     "body": {...}}, "error": null}

Answers are appended as they come, each line in one write. A batch that was killed leaves whole
lines, and at most a torn one at the end, which `Answers` removes. So what remains to do is known
from the two files.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from typing import TYPE_CHECKING, Any

from hearthd.bundle.parsing import strict_json, text_files
from hearthd.runtime.system.operating_system import lock, open_to_append
from hearthd.server.batch_requests.batch_request import BatchRequest, Reply

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_METHOD = "POST"
_URL = re.compile("/[!-~]*")
_START = b'{"id": "batch_req_'  # of an answer


class BadBatch(Exception):
    """A file of a batch cannot be used. The message names the file and the line."""


class Requests:
    """The requests of a file, which are all checked first; raises BadBatch.

    The file is read again for each request, so that it can be larger than memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: dict[str, int] = {}
        for number, (offset, line) in enumerate(_lines(path), 1):
            if not line.removeprefix(text_files.BYTE_ORDER_MARK).strip():
                continue
            custom_id = _request(line, f"{path}: line {number}").custom_id
            if custom_id in self._offsets:
                raise BadBatch(f"{path}: line {number}: custom_id {custom_id!r} occurs twice")
            self._offsets[custom_id] = offset

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, custom_id: str) -> bool:
        return custom_id in self._offsets

    def remaining(self, answered: set[str]) -> Iterator[BatchRequest]:
        """The requests without an answer, in the order of the file."""
        with self._path.open("rb") as file:
            for custom_id, offset in self._offsets.items():
                if custom_id not in answered:
                    file.seek(offset)
                    yield _request(file.readline(), str(self._path))


class Answers:
    """The file of answers, locked while it is open. A context manager; raises BadBatch.

    `answered` are the ids of the requests with an answer.
    """

    def __init__(self, path: Path, requests: Requests) -> None:
        self._path = path
        self._file = open_to_append(path)
        try:
            try:
                lock(self._file)
            except BlockingIOError:
                raise BadBatch(f"{path}: another batch writes to this file") from None
            self.answered = self._read(requests)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def append(self, custom_id: str, reply: Reply) -> None:
        """Add the answer to the request with this id; raises OSError with the file's name."""
        line = {
            "id": f"batch_req_{uuid.uuid4().hex}",
            "custom_id": custom_id,
            "response": {
                "status_code": reply.status,
                "request_id": reply.request_id,
                "body": _body(reply.body),
            },
            "error": None,
        }
        text = json.dumps(line, ensure_ascii=False) + "\n"
        rest = memoryview(text.encode(errors="backslashreplace"))
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            error.filename = str(self._path)
            raise
        self.answered.add(custom_id)

    def _read(self, requests: Requests) -> set[str]:
        """The ids in the file; removes a torn last line."""
        answered: set[str] = set()
        end = 0
        for number, (offset, line) in enumerate(_lines(self._path), 1):
            where = f"{self._path}: line {number}"
            if not line.endswith(b"\n"):
                torn = line.rstrip(b"\0")[: len(_START)]  # a power failure may leave zeros
                if not _START.startswith(torn):
                    raise BadBatch(f"{where}: not the start of an answer; choose another --out")
                break
            end = offset + len(line)
            answer = _object(line, where)
            custom_id = answer.get("custom_id")
            if not isinstance(custom_id, str) or custom_id not in requests:
                raise BadBatch(
                    f"{where}: answers {custom_id!r}, which is not in the file of requests; "
                    "choose another --out"
                )
            if "response" not in answer:
                raise BadBatch(f"{where}: not an answer: no response; choose another --out")
            answered.add(custom_id)
        os.ftruncate(self._file, end)
        return answered


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(offset, line) of every line of a file."""
    try:
        with path.open("rb") as file:
            offset = 0
            for line in file:
                yield offset, line
                offset += len(line)
    except OSError as error:
        raise BadBatch(f"{path} cannot be read: {error.strerror}") from error


def _request(line: bytes, where: str) -> BatchRequest:
    fields = _object(line, where)
    custom_id, method = fields.get("custom_id"), fields.get("method", _METHOD)
    url, body = fields.get("url"), fields.get("body")
    if not isinstance(custom_id, str) or not custom_id:
        raise BadBatch(f"{where}: custom_id: got {custom_id!r}, expected a text")
    if method != _METHOD:
        raise BadBatch(f"{where}: method: got {method!r}, expected {_METHOD!r}")
    if not isinstance(url, str) or not _URL.fullmatch(url):
        raise BadBatch(f"{where}: url: got {url!r}, expected a path such as /v1/chat/completions")
    if not isinstance(body, dict) or body.get("stream"):
        raise BadBatch(f"{where}: body: expected a JSON object without stream")
    return BatchRequest(custom_id=custom_id, url=url, body=json.dumps(body).encode())


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = strict_json.parse(text_files.decode(line))
    except ValueError as error:
        raise BadBatch(f"{where}: {error}") from error
    if not isinstance(value, dict):
        raise BadBatch(f"{where}: expected a JSON object")
    return value


def _body(body: bytes) -> Any:
    """The JSON of an answer; text that is not JSON as it is."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
