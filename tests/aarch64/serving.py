"""A `serve` as a process, here or on an emulated board: what it answers, or why it refuses.

It knows HTTP and processes; not where the command runs.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What the README asks, greedily and for eight tokens.
REQUEST = {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
_PATIENCE = 3600.0  # seconds until a server is ready: emulated, with others at work
_REFUSES = 300.0


class ServeError(Exception):
    """A server ended, or did not do what was wanted; the message has its last words."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The tokens of an answer, and how far the self-test's logits were from NumPy's."""

    token_ids: tuple[int, ...]
    text: str
    largest_difference: float

    @staticmethod
    def of(generated: Any, health: Any) -> Answer:
        """From what /generate and /health say."""
        if not health["self_test"]["passed"]:
            raise ServeError(health["self_test"]["message"])
        return Answer(
            token_ids=tuple(generated["token_ids"]),
            text=generated["text"],
            largest_difference=health["self_test"]["largest_difference"],
        )


def answer(command: Sequence[str]) -> Answer:
    """Start a server by a command, ask it, and end it; raises ServeError."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with _running([*command, "--port", str(port)]) as (process, words):
        until = time.monotonic() + _PATIENCE
        while not _ready(address):
            if process.poll() is not None or time.monotonic() > until:
                words.seek(0)
                raise ServeError(f"the server was not ready: {words.read()[-2000:]}")
            time.sleep(1)
        return Answer.of(_json(f"{address}/generate", REQUEST), _json(f"{address}/health"))


def refusal(command: Sequence[str]) -> str:
    """The one line with which a server refuses to start; raises ServeError if it is not that."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_REFUSES)
    lines = done.stderr.splitlines()
    if done.returncode != 1 or done.stdout or len(lines) != 1 or not lines[0].startswith("serve: "):
        raise ServeError(f"wanted one line and exit 1, got {done}")
    return lines[0]


@contextlib.contextmanager
def _running(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A process and what it says; its end is the block's end."""
    with (
        tempfile.TemporaryFile("w+") as words,
        subprocess.Popen(command, stdout=words, stderr=words, text=True) as process,
    ):
        try:
            yield process, words
            process.terminate()
            process.wait(120)
        finally:
            process.kill()


def _ready(address: str) -> bool:
    try:
        _json(f"{address}/health/ready")
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
    return True


def _json(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=_PATIENCE) as response:
        return json.load(response)
