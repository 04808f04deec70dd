"""Codex: `codex exec` by /v1/responses."""

from __future__ import annotations

import json
import shlex
from functools import partial
from typing import TYPE_CHECKING

from tools.clients.checks.agent import CITY, MCP, Call, call_mcp, edit_a_file, output
from tools.clients.checks.checking import STREAMED_TOOLS, TOOL, Feature, main, require
from tools.clients.checks.mcp_server import COMMAND, NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Without its sandbox, which many containers do not allow.
_OPTIONS = "--json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox"
_CONFIG = """
model = "hearth"
model_provider = "hearth"

[model_providers.hearth]
name = "Hearth"
base_url = "{base}/v1"
wire_api = "responses"

[mcp_servers.{name}]
command = "{program}"
args = {arguments}
"""


def _ask(base: str, prompt: str, folder: Path) -> str:
    program, *arguments = COMMAND
    config = _CONFIG.format(base=base, name=NAME, program=program, arguments=json.dumps(arguments))
    folder.joinpath("config.toml").write_text(config, encoding="utf-8")
    variables = {"CODEX_HOME": str(folder)}
    printed = output("codex", "exec", *_OPTIONS.split(), prompt, folder=folder, variables=variables)
    items = [json.loads(line).get("item", {}) for line in printed.splitlines()]
    messages = [item["text"] for item in items if item.get("type") == "agent_message"]
    require(messages, printed[-400:])
    return str(messages[-1])


def _read(file: str) -> Call:
    return "exec_command", {"cmd": f"cat {shlex.quote(file)}"}


def _edit(file: str, old: str, new: str) -> Call:
    return "exec_command", {"cmd": f"sed -i s/{old}/{new}/ {shlex.quote(file)}"}


def features(base: str, _model: str) -> Iterator[Feature]:
    """The task of agents, and a tool of an MCP server."""
    ask = partial(_ask, base)
    yield STREAMED_TOOLS, partial(edit_a_file, ask, _read, _edit)
    yield MCP, partial(call_mcp, ask, (f"mcp__{NAME}__{TOOL['name']}", CITY))


if __name__ == "__main__":
    main(features)
