"""`hearth install-service`: write the systemd unit of a server."""

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from hearthd.bake_flags import BakesFirst
from hearthd.bundle import BundleError, bundle_home
from hearthd.find_or_bake import MODEL_HELP, find, find_or_bake
from hearthd.model_weights import Weights
from hearthd.server.complete_file import write_completely
from hearthd.server.systemd.unit import (
    NAME,
    SYSTEM,
    CannotInstall,
    Scope,
    check_visible,
    unit_text,
    user_scope,
)
from hearthd.server.terminal.bundle_commands import Home

# Exceptions that end the command, each with its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {BundleError: 1, CannotInstall: 1}

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=BakesFirst)
def _install_service(
    context_: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            autocompletion=bundle_home.completed_names,
            help=MODEL_HELP,
            show_default=False,
        ),
    ],
    *,
    system: Annotated[
        bool,
        typer.Option(
            "--system", help="Write a unit of the machine to /etc/systemd/system. Needs root."
        ),
    ] = False,
    print_: Annotated[
        bool, typer.Option("--print", help="Print the unit to standard output; write no file.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a unit that exists.")] = False,
    home: Home = bundle_home.DEFAULT,
) -> None:
    """Write a systemd unit that serves a model.

    The unit is one of this user, in ~/.config/systemd/user, or with --system one of the machine. It
    runs this installation of Hearth with the bundle's folder. Nothing is started: the commands that
    start it are printed.

    \b
        hearth install-service smollm2-135m
        sudo /opt/hearth/bin/hearth install-service --system /srv/hearth/bundle
    """
    found = find(model, home, context_.obj)
    home = bundle_home.expanded(home).absolute()
    if system:
        package = Path(__file__).parents[2]
        bundles = home if isinstance(found, Weights) else found
        check_visible(bundles, Path(sys.prefix), Path(sys.base_prefix), package)
    scope = SYSTEM if system else user_scope()
    if not print_:
        _check_destination(scope, force=force)
    bundle = find_or_bake(model, home, context_.obj).absolute()
    text = unit_text(scope, bundle, home, Path(sys.executable))
    if print_:
        print(text, end="")  # noqa: T201
    else:
        write_completely(scope.folder / NAME, text)
        print(_next_steps(scope))  # noqa: T201


def _check_destination(scope: Scope, *, force: bool) -> None:
    """Create the folder of units; raises CannotInstall if the unit cannot be written to it."""
    path = scope.folder / NAME
    if shutil.which("systemctl") is None:
        raise CannotInstall(
            "this machine has no systemctl to start a unit with; --print prints the unit"
        )
    if os.path.lexists(path) and not force:
        raise CannotInstall(f"{path}: exists already; --force replaces it")
    scope.folder.mkdir(parents=True, exist_ok=True)
    if not os.access(scope.folder, os.W_OK):
        raise CannotInstall(
            f"{scope.folder}: not writable by this user; --system needs root, --print prints it"
        )


def _next_steps(scope: Scope) -> str:
    linger = "\n    loginctl enable-linger          # it runs without a login, too"
    return f"""wrote {scope.folder / NAME}

To start it now and with the machine:

    {scope.systemctl} daemon-reload
    {scope.systemctl} enable --now hearth{"" if scope is SYSTEM else linger}

Settings, such as HEARTH_PORT=9000, belong in {scope.settings}."""
