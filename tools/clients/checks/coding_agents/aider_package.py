"""Aider: one message about a file, by OpenAI's and by Ollama's API."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tools.clients.checks.checking import GREETING, LENGTH, Feature, main, require

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIMEOUT = 300  # seconds
_SETTINGS = f"- name: aider/extra_params\n  extra_params: {{max_tokens: {LENGTH}}}\n"
_OPTIONS = (
    "--yes-always --no-git --no-pretty --no-check-update --analytics-disable "
    "--no-show-model-warnings"
)


def _ask(name: str, environment: dict[str, str], *options: str) -> None:
    """Ask a question about a file, and require an answer with its count of tokens."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "weather.py").write_text('city = "Paris"\n', encoding="utf-8")
        Path(folder, ".aider.model.settings.yml").write_text(_SETTINGS, encoding="utf-8")
        command = [str(Path(sys.executable).parent / "aider"), "--model", name, *_OPTIONS.split()]
        done = subprocess.run(
            [*command, *options, "--chat-mode", "ask", "--message", GREETING, "weather.py"],
            cwd=folder,
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    answer = done.stdout + done.stderr
    # A small model may answer until the limit, which Aider reports with its count of tokens.
    is_answered = "tokens" in answer.lower() and "litellm." not in answer
    require(done.returncode == 0 and is_answered, answer[-400:])


def features(base: str, model: str) -> Iterator[Feature]:
    """Both APIs, streamed and whole."""
    openai = {"OPENAI_API_BASE": f"{base}/v1", "OPENAI_API_KEY": "none"}
    ollama = {"OLLAMA_API_BASE": base}
    yield "chat", lambda: _ask(f"openai/{model}", openai, "--no-stream")
    yield "stream", lambda: _ask(f"openai/{model}", openai)
    yield "chat (Ollama)", lambda: _ask(f"ollama_chat/{model}", ollama, "--no-stream")
    yield "stream (Ollama)", lambda: _ask(f"ollama_chat/{model}", ollama)


if __name__ == "__main__":
    main(features)
