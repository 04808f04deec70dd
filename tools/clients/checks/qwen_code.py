"""Qwen Code: `qwen -p` by chat completions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tools.clients.checks.agent import Call, edit_a_file, output, scripted_server
from tools.clients.checks.checking import STREAMED_TOOLS, Feature, main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _ask(base: str, prompt: str, folder: Path) -> str:
    variables = {"OPENAI_BASE_URL": f"{base}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": "any"}
    return output("qwen", "--yolo", "-p", prompt, folder=folder, variables=variables)


def _read(file: str) -> Call:
    return "read_file", {"file_path": file}


def _edit(file: str, old: str, new: str) -> Call:
    return "edit", {"file_path": file, "old_string": old, "new_string": new}


def features(_base: str, _model: str) -> Iterator[Feature]:
    """The task of agents."""
    with scripted_server() as base:
        yield STREAMED_TOOLS, partial(edit_a_file, partial(_ask, base), _read, _edit)


if __name__ == "__main__":
    main(features)
