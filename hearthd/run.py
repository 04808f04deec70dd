"""`hearth run`: chat with a model, which is baked first if it is missing."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from hearthd.bundle import bundle_home
from hearthd.runtime.interrupts import STATUS as INTERRUPTED
from hearthd.runtime.interrupts import at_interrupt, end_process
from hearthd.server.terminal import commands
from hearthd.server.terminal.bundle_commands import Home

ERRORS = commands.ERRORS

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def _run(
    context_: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A bundle, or a model that `hearth bake` knows, such as gemma3.",
        ),
    ],
    *,
    home: Home = bundle_home.DEFAULT,
) -> None:
    """Chat with a model, which is baked first if it is missing.

    A bundle is a folder, or a name that `hearth list` shows. If there is none, `hearth bake MODEL`
    writes it to --home. Further options are those of `hearth chat`.

    \b
        hearth run gemma3
        hearth run gemma3 --system "Answer in one sentence." --temperature 0
    """
    bundle = bundle_home.find_bundle(model, home)
    if not bundle_home.is_bundle(bundle):
        bundle = bundle_home.expanded(home) / model
        _bake(model, bundle)
    chat = typer.main.get_command(commands.chat)
    chat.main([str(bundle), *context_.args], prog_name="hearth run", standalone_mode=False)


def _bake(model: str, out: Path) -> None:
    """Bake in a process of its own, whose memory is free again for the chat."""
    from hearthd.baker.pipeline.recipe import recipes  # not on every device

    if model not in recipes():
        known = ", ".join(recipes())
        raise typer.BadParameter(f"got {model!r}, expected a bundle or one of {known}.")
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "hearthd", "bake", model, "--out", str(out)]
    with subprocess.Popen(command) as child, at_interrupt(lambda: _end_with(child)):
        status = child.wait()
    if status:
        raise SystemExit(status)


def _end_with(bake: subprocess.Popen[bytes]) -> NoReturn:
    """End the bake, which says that it was interrupted, and this process."""
    end_process(bake, signal.SIGINT)
    os._exit(INTERRUPTED)
