"""`python -m tests.faults`: kill bakes at every stage, and crowd a server with connections."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tests.faults.connections import crowd
from tests.faults.kill import kill_bakes

command = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@command.command("kill")
def _kill(
    rounds: Annotated[int, typer.Option(help="Bakes killed at a moment drawn at random.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 0,
) -> None:
    """Kill `bake gru` (SIGKILL) after each stage, then at random moments.

    After each: the bundle is the one before or the new one, whole; no compiler runs; and the next
    bake removes what was left.
    """
    with tempfile.TemporaryDirectory(prefix="hearth-kill-") as folder:
        kill_bakes(Path(folder), rounds=rounds, seed=seed)


@command.command("connections")
def _connections(
    idle: Annotated[int, typer.Option(help="Connections that send nothing.")] = 10_000,
    slow: Annotated[int, typer.Option(help="Clients that send a byte a second, each kind.")] = 200,
    requests: Annotated[int, typer.Option(help="Ordinary requests that are timed.")] = 100,
) -> None:
    """Crowd a server with a fake model, and time ordinary requests before and meanwhile.

    Needs twice as many open files as connections, in two processes: see `ulimit -n`.
    """
    crowd(idle=idle, slow=slow, requests=requests)


if __name__ == "__main__":
    command(prog_name="python -m tests.faults")
