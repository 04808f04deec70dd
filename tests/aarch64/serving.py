"""Run `hearth serve` here or on an emulated board, and read its answers or its error."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What docs/small-devices.md asks, greedily and for eight tokens.
REQUEST = {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
_PATIENCE = 3600.0  # seconds until a server is ready: emulated, with others at work
_REFUSES = 300.0


class ServeError(Exception):
    """A server ended, or did not do what was wanted; the message has its last words."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The tokens of an answer, and how far the self-test's logits were from NumPy's."""

    token_ids: list[int]
    text: str
    largest_difference: float

    @staticmethod
    def of(generated: Any, health: Any) -> Answer:
        """From what /generate and /health say."""
        if not health["self_test"]["passed"]:
            raise ServeError(health["self_test"]["message"])
        return Answer(
            token_ids=generated["token_ids"],
            text=generated["text"],
            largest_difference=health["self_test"]["largest_difference"],
        )


@contextlib.contextmanager
def session(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process, with all that it starts: what is left of them at the block's end is killed."""
    with subprocess.Popen(command, text=True, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def answer(command: Sequence[str]) -> Answer:
    """Start a server by a command, ask it, and end it; raises ServeError."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with (
        tempfile.TemporaryFile("w+") as words,
        session([*command, "--port", str(port)], stdout=words, stderr=words) as process,
    ):
        until = time.monotonic() + _PATIENCE
        while not _ready(address):
            if process.poll() is not None or time.monotonic() > until:
                words.seek(0)
                raise ServeError(f"the server was not ready: {words.read()[-2000:]}")
            time.sleep(1)
        got = Answer.of(_json(f"{address}/generate", REQUEST), _json(f"{address}/health"))
        process.terminate()
        if process.wait(120):
            raise ServeError(f"the server ended with {process.returncode}")
        return got


def refusal(command: Sequence[str]) -> str:
    """The one line with which a server refuses to start; raises ServeError if it is not that."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_REFUSES)
    lines = done.stderr.splitlines()
    if done.returncode != 1 or done.stdout or len(lines) != 1 or not lines[0].startswith("serve: "):
        raise ServeError(f"wanted one line and exit 1, got {done}")
    return lines[0]


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
