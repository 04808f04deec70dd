"""Codex: `codex exec` answers a question by /v1/responses, with its whole prompt and tools."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tools.clients.checks.checking import GREETING, STREAM, Feature, main, require

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIMEOUT = 600  # seconds
_LIMITS = ("ran out of room", "max_output_tokens")
_CONFIG = """
model = "hearth"
model_provider = "hearth"

[model_providers.hearth]
name = "Hearth"
base_url = "{base}/v1"
wire_api = "responses"
stream_idle_timeout_ms = 3600000
"""


def _answer(base: str) -> None:
    """Require an answer or a call. A small model may go on until its context is full."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.toml").write_text(_CONFIG.format(base=base), encoding="utf-8")
        done = subprocess.run(
            ["node_modules/.bin/codex", "exec", "--json", "--skip-git-repo-check", GREETING],
            env={**os.environ, "CODEX_HOME": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    items = {event["item"]["type"] for event in events if event["type"] == "item.completed"}
    failures = [event for event in events if event["type"] == "turn.failed"]
    at_limit = [any(limit in str(failure) for limit in _LIMITS) for failure in failures]
    require(all(at_limit), failures)
    require(items - {"error"} or at_limit, done.stderr[-400:])


def features(base: str, _model: str) -> Iterator[Feature]:
    """One answer."""
    yield STREAM, lambda: _answer(base)


if __name__ == "__main__":
    main(features)
