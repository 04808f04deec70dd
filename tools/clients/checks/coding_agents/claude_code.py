"""Claude Code: `claude -p` by Anthropic's messages, in one conversation with a compaction."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.clients.checks.agent import CITY, MCP, Call, call_mcp, edit_a_file, output
from tools.clients.checks.checking import (
    GREETING,
    NEXT,
    STREAM,
    STREAMED_TOOLS,
    TOOL,
    Feature,
    main,
    require,
)
from tools.clients.checks.mcp_server import COMMAND, NAME

if TYPE_CHECKING:
    from collections.abc import Iterator


# Claude Code lists the tools of MCP servers by name alone, until the model asks for one.
WEATHER = f"mcp__{NAME}__{TOOL['name']}"
WEATHER_CALLS: tuple[Call, ...] = (
    ("ToolSearch", {"query": f"select:{WEATHER}"}),
    (WEATHER, CITY),
)


def variables(base: str) -> dict[str, str]:
    """The variables that send all requests to a server."""
    return {
        "ANTHROPIC_BASE_URL": base,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": "hearth",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "hearth",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _result(base: str, prompt: str, folder: Path, *options: str) -> dict[str, Any]:
    """The result of a prompt; requires that it is not an error."""
    command = ("claude", "-p", prompt, "--output-format", "json", *options)
    printed = output(*command, folder=folder, variables=variables(base))
    result: dict[str, Any] = json.loads(printed.splitlines()[-1])
    require(not result["is_error"], result["result"])
    return result


def _ask(base: str, prompt: str, folder: Path) -> str:
    options = ("--allowedTools", "Read", "Edit")
    return str(_result(base, prompt, folder, *options)["result"])


def _call(base: str, prompt: str, folder: Path) -> str:
    program, *arguments = COMMAND
    config = {"mcpServers": {NAME: {"command": program, "args": arguments}}}
    options = ("--mcp-config", json.dumps(config), "--allowedTools", WEATHER)
    return str(_result(base, prompt, folder, *options)["result"])


def read(file: str) -> Call:
    """The call that reads a file."""
    return "Read", {"file_path": file}


def edit(file: str, old: str, new: str) -> Call:
    """The call that replaces a word in a file."""
    return "Edit", {"file_path": file, "old_string": old, "new_string": new}


class Conversation:
    """A conversation in a folder."""

    def __init__(self, base: str, folder: Path) -> None:
        self._base = base
        self._folder = folder

    def greet(self) -> None:
        """The first turn."""
        usage = _result(self._base, GREETING, self._folder)["usage"]
        require(usage["input_tokens"] > 0, "no token was read")

    def go_on(self) -> None:
        """A second turn, in one or more requests, reads only new tokens."""
        usage = _result(self._base, NEXT, self._folder, "--continue")["usage"]
        read, cached = usage["input_tokens"], usage["cache_read_input_tokens"]
        require(cached > 10 * read, f"{read} tokens were read, and {cached} were cached")

    def compact(self) -> None:
        """A summary takes the place of the conversation, which goes on."""
        result = _result(self._base, "/compact", self._folder, "--continue")["result"]
        require("Error" not in result, result)
        _result(self._base, NEXT, self._folder, "--continue")


def features(base: str, _model: str) -> Iterator[Feature]:
    """The task of agents; two turns, and a compaction between the second and the third."""
    with tempfile.TemporaryDirectory() as folder:
        yield STREAMED_TOOLS, partial(edit_a_file, partial(_ask, base), read, edit)
        yield MCP, partial(call_mcp, partial(_call, base), *WEATHER_CALLS)
        conversation = Conversation(base, Path(folder))
        yield STREAM, conversation.greet
        yield "second turn from the cache", conversation.go_on
        yield "compaction", conversation.compact


if __name__ == "__main__":
    main(features)
