"""What coding agents do: they read a file, edit it, and read it again."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import get_weather, require

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TIMEOUT = 600  # seconds
MCP = "tool of an MCP server"
CITY = {"city": "Paris"}
_RED, _BLUE = "color = red\n", "color = blue\n"

Call = tuple[str, dict[str, Any]]  # the name and the arguments of a tool


def output(*command: str, folder: Path, variables: Mapping[str, str], typed: str = "") -> str:
    """What the program of a package prints in a folder, which is also its home."""
    program = Path("node_modules/.bin", command[0]).resolve()
    done = subprocess.run(
        [str(program), *command[1:]],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "PWD": str(folder), **variables},
        input=typed,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    require(done.returncode == 0, done.stderr[-400:] or done.stdout[-400:])
    return done.stdout


def prompt_of(*calls: Call) -> str:
    """A prompt after which the scripted model calls tools."""
    lines = [json.dumps({"name": name, "arguments": given}) for name, given in calls]
    return "\n".join(["Call tools.", *(f"say: {line}" for line in lines)])


def call_mcp(ask: Callable[[str, Path], str], *calls: Call) -> None:
    """Require that the answer has what the tool of mcp_server.py returns in the last call."""
    with tempfile.TemporaryDirectory() as folder:
        said = ask(prompt_of(*calls), Path(folder))
        require(get_weather(**CITY) in said, said[-400:])


def edit_a_file(
    ask: Callable[[str, Path], str],
    read: Callable[[str], Call],
    edit: Callable[[str, str, str], Call],
) -> None:
    """Require that a file is edited, and that the answer has what was read afterwards.

    `ask` gives the output of the agent for a prompt, in a folder. `read` has the call that reads a
    file, and `edit` the call that replaces a word in it with another one.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "notes.txt")
        file.write_text(_RED, encoding="utf-8")
        calls = [read(str(file)), edit(str(file), "red", "blue"), read(str(file))]
        said = ask(prompt_of(*calls), Path(folder))
        require(file.read_text(encoding="utf-8") == _BLUE, said[-400:])
        require(_BLUE.strip() in said, said[-400:])
