"""opencode: `opencode run` by chat completions."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from tools.clients.checks.agent import Call, edit_a_file, output, scripted_server
from tools.clients.checks.checking import STREAMED_TOOLS, Feature, main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _ask(base: str, prompt: str, folder: Path) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{base}/v1"},
        "models": {"any": {}},
    }
    config = json.dumps({"provider": {"hearth": provider}})
    folder.joinpath("opencode.json").write_text(config, encoding="utf-8")
    # It would escape the quotes in an argument.
    command = ("opencode", "run", "--model", "hearth/any")
    return output(*command, folder=folder, variables={}, typed=prompt)


def _read(file: str) -> Call:
    return "read", {"filePath": file}


def _edit(file: str, old: str, new: str) -> Call:
    return "edit", {"filePath": file, "oldString": old, "newString": new}


def features(_base: str, _model: str) -> Iterator[Feature]:
    """The task of agents."""
    with scripted_server() as base:
        yield STREAMED_TOOLS, partial(edit_a_file, partial(_ask, base), _read, _edit)


if __name__ == "__main__":
    main(features)
