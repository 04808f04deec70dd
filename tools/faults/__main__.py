"""`python -m tools.faults`: kill bakes, interrupt commands, overload a server with connections."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tools.faults.connections import crowd
from tools.faults.interrupts import cases, interrupt_commands
from tools.faults.kill import kill_bakes

command = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@command.command("kill")
def _kill(
    rounds: Annotated[int, typer.Option(help="Number of bakes to kill at random moments.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the random moments.")] = 0,
) -> None:
    """Kill `hearth bake gru` with SIGKILL after each stage, then at random moments.

    Checks that the destination has the complete old or new bundle, that no compiler keeps running,
    and that the next bake removes temporary folders.
    """
    with tempfile.TemporaryDirectory(prefix="hearth-kill-") as folder:
        kill_bakes(Path(folder), rounds=rounds, seed=seed)


@command.command("interrupts")
def _interrupts(
    count: Annotated[int, typer.Option(help="Number of interrupted commands.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the random moments.")] = 0,
    seconds: Annotated[float, typer.Option(help="Seconds that a command may take to end.")] = 1,
    bundle: Annotated[
        Path | None, typer.Option(help="Bundle of a language model, for more commands.")
    ] = None,
) -> None:
    """Send Ctrl-C to commands at random moments of their lives, and three within 40 ms.

    Checks that each ends with one line and status 130, and leaves no file and no process.
    """
    with tempfile.TemporaryDirectory(prefix="hearth-interrupts-") as name:
        folder = Path(name)
        interrupt_commands(folder, cases(folder, bundle), count=count, seed=seed, seconds=seconds)


@command.command("connections")
def _connections(
    idle: Annotated[int, typer.Option(help="Number of idle connections.")] = 10_000,
    slow: Annotated[
        int, typer.Option(help="Number of clients of each type that send one byte per second.")
    ] = 200,
    requests: Annotated[int, typer.Option(help="Number of normal requests to time.")] = 100,
    tls: Annotated[bool, typer.Option("--tls", help="Connect with TLS.")] = False,
    handshake: Annotated[
        bool, typer.Option(help="Whether the idle connections of --tls make their handshake.")
    ] = True,
    client_timeout: Annotated[
        float,
        typer.Option(help="Seconds after which the server closes silent and slow connections."),
    ] = 30,
) -> None:
    """Overload a server with a fake model, and time normal requests before and meanwhile.

    Needs as many open files as connections in each of two processes: see `ulimit -n`.
    """
    crowd(
        idle=idle,
        slow=slow,
        requests=requests,
        tls=tls,
        handshake=handshake,
        client_timeout=client_timeout,
    )


if __name__ == "__main__":
    command(prog_name="python -m tools.faults")
