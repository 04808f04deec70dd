"""Start a server, wait until it completes a prompt, read its resources from /proc, stop it.

Linux only.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOAD_TIMEOUT = 300  # seconds
_INTERVAL = 0.02  # seconds between requests to a server that does not answer yet


@dataclass(frozen=True, kw_only=True)
class Server:
    """The name for the table, and the command without `--port N`.

    It is ready when it answers the `body` at the `route`, by default a prompt; None: a GET.
    """

    name: str
    command: tuple[str, ...]
    route: str = "/v1/completions"
    body: Mapping[str, object] | None = field(
        default_factory=lambda: {"prompt": "Hello", "max_tokens": 1}
    )


@dataclass(frozen=True, kw_only=True)
class Running:
    """A ready server; `first_token` is the time from its start to its first token in seconds."""

    url: str
    pid: int
    first_token: float


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resident memory in MB, open files and threads of a process and its descendants."""

    resident_mb: float
    files: int
    threads: int


class ServerFailed(Exception):
    """A server did not start, or ended; the message has its output."""


@contextlib.contextmanager
def running(server: Server) -> Iterator[Running]:
    """Run the server during the block, which starts after a first answer. Raises ServerFailed."""
    port = _free_port()
    began = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*server.command, "--port", str(port)], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            url = f"http://127.0.0.1:{port}"
            if not _answers(server, url, process):
                log.seek(0)
                output = log.read().decode(errors="replace").strip()[-1000:]
                raise ServerFailed(f"{server.name} does not answer: {output or 'no output'}")
            yield Running(url=url, pid=process.pid, first_token=time.perf_counter() - began)
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def resources(pid: int) -> Resources:
    """The current resources of the process tree; raises ServerFailed if it has ended."""
    try:
        members = _tree(pid)
        statuses = [_status(member) for member in members]
        return Resources(
            resident_mb=sum(int(status["VmRSS"].split()[0]) for status in statuses) * 1024 / 1e6,
            files=sum(len(list(Path(f"/proc/{member}/fd").iterdir())) for member in members),
            threads=sum(int(status["Threads"]) for status in statuses),
        )
    except (OSError, KeyError) as error:  # a process that has ended has no memory
        raise ServerFailed(f"a server ended while it was measured: {error}") from error


def _tree(pid: int) -> list[int]:
    """The process and its descendants."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    child_ids = [int(child) for path in children for child in path.read_text("ascii").split()]
    return [pid, *(member for child in child_ids for member in _tree(child))]


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _answers(server: Server, url: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether the server answers before it ends or the timeout expires."""
    deadline = time.monotonic() + _LOAD_TIMEOUT
    with httpx.Client(timeout=60) as client:
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                method = "GET" if server.body is None else "POST"
                if client.request(method, url + server.route, json=server.body).is_success:
                    return True
            time.sleep(_INTERVAL)
    return False
