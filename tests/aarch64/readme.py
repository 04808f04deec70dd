"""The commands of docs/small-devices.md, followed to the letter: here, and on the board.

Three of its words stand for something else, since there is one machine and no network between two:
`scp` copies into the board's home, `sudo apt install` names packages that are there already, and
what the checkout gets goes into a copy of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.aarch64.serving import Answer, ServeError, session

if TYPE_CHECKING:
    from tests.aarch64.root import Root

CHECKOUT = Path(__file__).parents[2]
PAGE = "docs/small-devices.md"
# Where the section's commands leave the bundle and the program `hearth`, in the board's home.
BUNDLE = "pi5"
HEARTH = ".venv/bin/hearth"

_ASKS_FOR_PACKAGES = re.compile(r"^sudo apt install -y (.+)$", re.MULTILINE)
_SCP = 'scp() { cp -r "${@:1:$#-1}" "$BOARD_HOME"; }\n'
_SUDO = "sudo() { :; }\n"


def block(marker: str) -> str:
    """The commands below `<!-- marker -->` on the page."""
    text = (CHECKOUT / PAGE).read_text(encoding="utf-8")
    match = re.search(rf"<!-- {marker} -->\n```bash\n(.*?)```", text, re.DOTALL)
    assert match, f"{PAGE} has no commands {marker!r}"
    return match[1]


def packages() -> list[str]:
    """The packages that the section installs on the board."""
    return [name for line in _ASKS_FOR_PACKAGES.findall(block("pi")) for name in line.split()]


def tracked(*paths: str) -> list[str]:
    """The checkout's files, or those below some paths in it; each relative to it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *paths], capture_output=True, text=True, check=True, cwd=CHECKOUT
    )
    return listed.stdout.split("\0")[:-1]


def follow_here(root: Root) -> None:
    """Do on this machine what the section says, in a copy of the checkout beside the root.

    Raises ServeError.
    """
    checkout = root.folder.with_name("checkout")
    for name in tracked():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, checkout / name, follow_symlinks=False)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(checkout),
        "BOARD_HOME": str(root.home),
    }
    commands = ["bash", "-euo", "pipefail", "-c", _SCP + block("pi-bake")]
    with session(commands, cwd=checkout, env=environment) as process:
        if process.wait():
            raise ServeError(f"the commands on this machine: {process.returncode}")


def follow_on_the_board(root: Root, cpu: str) -> Answer:
    """Do on the board what the section says; raises ServeError unless it answers."""
    commands = root.command(cpu, "bash", "-euo", "pipefail", "-c", _SUDO + block("pi"))
    with session(commands, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        printed, complaints = process.communicate()
    said = objects(printed)
    if process.returncode or len(said) != 2:
        raise ServeError(f"the commands on the board: {process.returncode}: {printed}{complaints}")
    return Answer.of(*said)


def objects(text: str) -> list[Any]:
    """The JSON objects in the output of commands, with any text between them."""
    values, at = [], text.find("{")
    while at >= 0:
        entry, at = json.JSONDecoder().raw_decode(text, at)
        values.append(entry)
        at = text.find("{", at)
    return values
