"""Kimi Code: `kimi -p` by chat completions."""

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

_CONFIG = """
default_model = "hearth"

[providers.hearth]
type = "openai"
base_url = "{base}/v1"
api_key = "none"

[models.hearth]
provider = "hearth"
model = "any"
max_context_size = 262144
"""


def _ask(base: str, prompt: str, folder: Path) -> str:
    settings = folder / ".kimi-code"
    settings.mkdir()
    settings.joinpath("config.toml").write_text(_CONFIG.format(base=base), encoding="utf-8")
    program, *arguments = COMMAND
    servers = {"mcpServers": {NAME: {"command": program, "args": arguments}}}
    settings.joinpath("mcp.json").write_text(json.dumps(servers), encoding="utf-8")
    return output("kimi", "-p", prompt, folder=folder, variables={})


def _read(file: str) -> Call:
    return "Read", {"path": file}


def _edit(file: str, old: str, new: str) -> Call:
    return "Edit", {"path": file, "old_string": old, "new_string": new}


def features(base: str, _model: str) -> Iterator[Feature]:
    """The task of agents, and a tool of an MCP server."""
    ask = partial(_ask, base)
    yield STREAMED_TOOLS, partial(edit_a_file, ask, _read, _edit)
    yield MCP, partial(call_mcp, ask, (f"mcp__{NAME}__{TOOL['name']}", CITY))


if __name__ == "__main__":
    main(features)
