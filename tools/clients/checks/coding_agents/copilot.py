"""GitHub Copilot CLI: `copilot -p` by each of the APIs that it has for local servers."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from tools.clients.checks.agent import CITY, MCP, Call, call_mcp, edit_a_file, output
from tools.clients.checks.checking import STREAMED_TOOLS, TOOL, Feature, main
from tools.clients.checks.mcp_server import COMMAND, NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def _ask(variables: Mapping[str, str], prompt: str, folder: Path) -> str:
    program, *arguments = COMMAND
    config = {"mcpServers": {NAME: {"command": program, "args": arguments, "tools": ["*"]}}}
    options = ("--allow-all-tools", "--additional-mcp-config", json.dumps(config))
    given = {"COPILOT_OFFLINE": "true", "COPILOT_MODEL": "any", **variables}
    return output("copilot", "-p", prompt, *options, folder=folder, variables=given)


def _read(file: str) -> Call:
    return "view", {"path": file}


def _edit(file: str, old: str, new: str) -> Call:
    return "edit", {"path": file, "old_str": old, "new_str": new}


def features(base: str, _model: str) -> Iterator[Feature]:
    """The task of agents by each API, and a tool of an MCP server."""
    chats = {"COPILOT_PROVIDER_BASE_URL": f"{base}/v1"}
    responses = chats | {"COPILOT_PROVIDER_WIRE_API": "responses"}
    anthropic = {"COPILOT_PROVIDER_BASE_URL": base, "COPILOT_PROVIDER_TYPE": "anthropic"}
    apis = {"": chats, " (responses)": responses, " (Anthropic)": anthropic}
    for suffix, variables in apis.items():
        yield STREAMED_TOOLS + suffix, partial(edit_a_file, partial(_ask, variables), _read, _edit)
    yield MCP, partial(call_mcp, partial(_ask, chats), (f"{NAME}-{TOOL['name']}", CITY))


if __name__ == "__main__":
    main(features)
