"""opencode: `opencode run` by chat completions."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from tools.clients.checks.agent import CITY, MCP, Call, call_mcp, edit_a_file, output
from tools.clients.checks.checking import STREAMED_TOOLS, TOOL, Feature, main
from tools.clients.checks.mcp_server import COMMAND, NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _ask(base: str, prompt: str, folder: Path) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{base}/v1"},
        "models": {"any": {}},
    }
    server = {"type": "local", "command": COMMAND}
    config = {"provider": {"hearth": provider}, "mcp": {NAME: server}}
    folder.joinpath("opencode.json").write_text(json.dumps(config), encoding="utf-8")
    # It would escape the quotes in an argument.
    command = ("opencode", "run", "--model", "hearth/any")
    return output(*command, folder=folder, variables={}, typed=prompt)


def _read(file: str) -> Call:
    return "read", {"filePath": file}


def _edit(file: str, old: str, new: str) -> Call:
    return "edit", {"filePath": file, "oldString": old, "newString": new}


def features(base: str, _model: str) -> Iterator[Feature]:
    """The task of agents, and a tool of an MCP server."""
    ask = partial(_ask, base)
    yield STREAMED_TOOLS, partial(edit_a_file, ask, _read, _edit)
    yield MCP, partial(call_mcp, ask, (f"{NAME}_{TOOL['name']}", CITY))


if __name__ == "__main__":
    main(features)
