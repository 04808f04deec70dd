"""Codex: `codex exec` by /v1/responses."""

from __future__ import annotations

import json
import shlex
from functools import partial
from typing import TYPE_CHECKING

from tools.clients.checks.agent import Call, edit_a_file, output, scripted_server
from tools.clients.checks.checking import STREAMED_TOOLS, Feature, main, require

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
"""


def _ask(base: str, prompt: str, folder: Path) -> str:
    folder.joinpath("config.toml").write_text(_CONFIG.format(base=base), encoding="utf-8")
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


def features(_base: str, _model: str) -> Iterator[Feature]:
    """The task of agents."""
    with scripted_server() as base:
        yield STREAMED_TOOLS, partial(edit_a_file, partial(_ask, base), _read, _edit)


if __name__ == "__main__":
    main(features)
