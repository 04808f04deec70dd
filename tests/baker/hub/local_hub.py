"""A server that speaks the protocol of the Hugging Face Hub, with faults on request.

Large files are redirected to another host, as the hub does: `localhost` in place of `127.0.0.1`.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".gguf", ".safetensors")
_PIECE = 1 << 14


class Request(NamedTuple):
    """A request that the server answered; `range` is its header."""

    method: str
    path: str
    range: str | None
    token: str | None


@dataclass
class Faults:
    """What the server does wrong.

    refusal   status and headers of every answer
    token     a request without this token is refused
    breaks    bytes after which the next answers with a file end; `reset` breaks the connection
    ranges    whether ranges are honored
    size      claimed in place of the size of each large file
    content   sent in place of the content of each large file
    pace      seconds between pieces of 16 KiB
    listing   sent in place of the list of files of each repository
    commit    claimed for each file
    shift     bytes by which an answer to a range begins later
    overlong  whether an answer to a range has the rest of the file, too
    """

    refusal: tuple[int, dict[str, str]] | None = None
    token: str | None = None
    breaks: list[int] = field(default_factory=list)
    reset: bool = False
    ranges: bool = True
    size: int | None = None
    content: bytes | None = None
    pace: float = 0.0
    listing: bytes | None = None
    commit: str = COMMIT
    shift: int = 0
    overlong: bool = False


class LocalHub(ThreadingHTTPServer):
    """Serves `repositories`: files by path, by ORG/REPO."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.faults = Faults()
        self.digests: dict[str, str] = {}  # claimed in place of the right ones, by path
        self.requests: list[Request] = []
        self.sent = 0  # bytes of large files

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def ranges(self) -> list[str | None]:
        """The ranges of the GETs of large files, after redirects."""
        return [r.range for r in self.requests if r.method == "GET" and r.path.startswith("/cdn/")]


@contextmanager
def serving() -> Iterator[LocalHub]:
    hub = LocalHub()
    thread = threading.Thread(target=hub.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


def git_digest(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: LocalHub
    protocol_version = "HTTP/1.1"

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        faults, path = self.server.faults, self.path.partition("?")[0]
        token = self.headers.get("Authorization")
        self.server.requests.append(
            Request(self.command, self.path, self.headers.get("Range"), token)
        )
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+?)(?:/revision/([^/]+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if path.startswith("/cdn/"):
            return self._large(path.removeprefix("/cdn/"))
        if faults.refusal is not None:
            return self._send(faults.refusal[0], faults.refusal[1])
        if faults.token is not None and token != f"Bearer {faults.token}":
            return self._send(401, {"X-Error-Code": "RepoNotFound"})
        match = api or file
        if match is None or match[1] not in self.server.repositories:
            return self._send(404, {"X-Error-Code": "RepoNotFound"})
        if match[2] not in (None, "main", COMMIT):
            return self._send(404, {"X-Error-Code": "RevisionNotFound"})
        files = self.server.repositories[match[1]]
        if api:
            listing = json.dumps(_info(match[1], files)).encode()
            return self._send(200, {}, listing if faults.listing is None else faults.listing)
        assert file is not None
        if file[3] not in files:
            return self._send(404, {"X-Error-Code": "EntryNotFound"})
        return self._file(file[3], files[file[3]])

    def _file(self, path: str, content: bytes) -> None:
        headers = {"X-Repo-Commit": self.server.faults.commit, "Accept-Ranges": "bytes"}
        if not path.endswith(LARGE):
            digest = self.server.digests.get(path, git_digest(content))
            return self._send(200, headers | {"ETag": f'"{digest}"'}, content)
        digest = hashlib.sha256(content).hexdigest()
        size = len(content) if self.server.faults.size is None else self.server.faults.size
        return self._send(
            302,
            headers
            | {
                "X-Linked-ETag": f'"{digest}"',
                "X-Linked-Size": str(size),
                "Location": f"http://localhost:{self.server.server_port}/cdn/{digest}",
            },
        )

    def _large(self, digest: str) -> None:
        """A file on the other host."""
        faults = self.server.faults
        content = next(
            content
            for files in self.server.repositories.values()
            for content in files.values()
            if hashlib.sha256(content).hexdigest() == digest
        )
        content = content if faults.content is None else faults.content
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        headers = {"ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
        if match is None or not faults.ranges:
            return self._pieces(200, headers, content)
        start, stop = int(match[1]), int(match[2] or len(content) - 1) + 1
        if start >= len(content):
            return self._send(416, {"Content-Range": f"bytes */{len(content)}"})
        start += faults.shift
        body = content[start:] if faults.overlong else content[start:stop]
        headers["Content-Range"] = f"bytes {start}-{start + len(body) - 1}/{len(content)}"
        return self._pieces(206, headers, body)

    def _pieces(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send a body slowly, or break off where a fault says so."""
        faults = self.server.faults
        end = min(faults.breaks.pop(0), len(body)) if faults.breaks else len(body)
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        for start in range(0, end, _PIECE):
            piece = body[start : min(start + _PIECE, end)]
            try:
                self.wfile.write(piece)
            except ConnectionError:  # the client has read enough
                return
            self.server.sent += len(piece)
            time.sleep(faults.pace)
        if end < len(body):
            self.close_connection = True
            if faults.reset:
                time.sleep(0.05)  # until the client has read what was sent
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()

    def _send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _info(name: str, files: dict[str, bytes]) -> dict[str, object]:
    """What the hub's API says of a repository."""
    return {"id": name, "sha": COMMIT, "siblings": [_sibling(*file) for file in files.items()]}


def _sibling(path: str, content: bytes) -> dict[str, object]:
    described = {"rfilename": path, "size": len(content), "blobId": git_digest(content)}
    if not path.endswith(LARGE):
        return described
    digest = hashlib.sha256(content).hexdigest()
    return described | {"lfs": {"sha256": digest, "size": len(content), "pointerSize": 134}}
