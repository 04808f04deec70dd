"""Claude Code: `claude -p` in one conversation with its prompt and tools, and a compaction."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import GREETING, NEXT, STREAM, Feature, main, require

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIMEOUT = 600  # seconds
_LENGTH = 200  # tokens of an answer
_TRIES = 5  # of a compaction: one with random weights may write no summary
_NO_SUMMARY = ("empty response", "no assistant message")
_AT_LIMIT = "max_output_tokens"  # a small model may not end its answer


class Conversation:
    """A conversation of Claude Code in a folder of its own."""

    def __init__(self, base: str, folder: Path) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "ANTHROPIC_BASE_URL": base,
            "ANTHROPIC_AUTH_TOKEN": "none",
            "ANTHROPIC_MODEL": "hearth",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "hearth",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(_LENGTH),
        }
        self._program = Path("node_modules/.bin/claude").resolve()

    def answer(self, prompt: str, *options: str) -> dict[str, Any]:
        """The result of a prompt; requires that there is one."""
        done = subprocess.run(
            [str(self._program), "-p", prompt, "--output-format", "json", *options],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        require(lines, done.stderr[-400:] or done.stdout[-400:])
        result: dict[str, Any] = json.loads(lines[-1])
        failed = result["is_error"] and result.get("api_error") != _AT_LIMIT
        require(not failed, result["result"])
        return result

    def greet(self) -> None:
        """The first turn."""
        require(_read(self.answer(GREETING)) > 0, "no token was read")

    def go_on(self) -> None:
        """A second turn, in one or more requests, reads only new tokens."""
        usage = self.answer(NEXT, "--continue")["usage"]
        read, cached = usage["input_tokens"], usage["cache_read_input_tokens"]
        require(cached > 10 * read, f"{read} tokens were read, and {cached} were cached")

    def compact(self) -> None:
        """A summary takes the place of the conversation, which goes on."""
        for _ in range(_TRIES):
            result = self.answer("/compact", "--continue")["result"]
            if not any(words in result for words in _NO_SUMMARY):
                break
        require("Error" not in result, result)
        self.answer(NEXT, "--continue")


def _read(result: dict[str, Any]) -> int:
    tokens: int = result["usage"]["input_tokens"]
    return tokens


def features(base: str, _model: str) -> Iterator[Feature]:
    """Two turns, and a compaction between the second and the third."""
    with tempfile.TemporaryDirectory() as folder:
        conversation = Conversation(base, Path(folder))
        yield STREAM, conversation.greet
        yield "second turn from the cache", conversation.go_on
        yield "compaction", conversation.compact


if __name__ == "__main__":
    main(features)
