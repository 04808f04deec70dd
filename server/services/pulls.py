"""Pull a model from the Hugging Face Hub and bake it, in a process of its own.

The server has neither the hub's client nor the baker: `hearth pull` has, and frees its memory when
it ends. It dies with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.runtime.system.operating_system import apart_from_terminal, kill_children
from hearthd.server.errors import PullFailed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

_MAX_LINE = 2**20


@dataclass(frozen=True, kw_only=True)
class PullProgress:
    """The running stage: `completed` of `total` units, 0 if their number is not known."""

    stage: str
    total: int = 0
    completed: int = 0


def pull_command(reference: str, name: str, home: Path) -> list[str]:
    """The command that pulls a reference such as hf:ORG/REPO, and bakes it into a folder."""
    options = ("--bake", "--json", "--name", name, "--home", str(home))
    start = [sys.executable, "-P", "-m", "hearthd.child_command", str(os.getpid())]
    return [*start, "pull", *options, "--", reference]


async def pull(command: list[str]) -> AsyncGenerator[PullProgress | str]:
    """The progress of a pull, and at its end the path of the bundle; raises PullFailed.

    The process is killed when the iterator is closed. What was downloaded stays in the hub's cache.
    """
    options: dict[str, Any] = {
        "stdin": asyncio.subprocess.DEVNULL,
        "stdout": asyncio.subprocess.PIPE,
        "stderr": asyncio.subprocess.PIPE,
        "limit": _MAX_LINE,
        **apart_from_terminal(),
    }
    process = await asyncio.create_subprocess_exec(*command, **options)
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    try:
        async for line in process.stdout:
            fields = json.loads(line)
            if "path" in fields:
                yield str(fields["path"])
            elif "note" in fields:
                yield PullProgress(stage=fields["note"])
            else:
                yield PullProgress(**fields)
        if await process.wait():
            lines = (await errors).decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"ended with status {process.returncode}"
            raise PullFailed(reason.removeprefix("hearth pull: "))
    finally:
        errors.cancel()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                kill_children(process.pid)
            await process.wait()
