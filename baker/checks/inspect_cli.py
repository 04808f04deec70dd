"""`hearth inspect`. It needs nothing of the baker's extra, so it runs on a device, too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hearthd.baker.checks.inspection import show, show_summary
from hearthd.baker.presentation.console import open_console
from hearthd.bundle import BundleError, bundle_home

# Exceptions that end the command, and its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {BundleError: 1}

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example:\n\n\b\n    hearth inspect gemma3-270m")
def _inspect(
    bundle: Annotated[
        Path,
        typer.Argument(
            metavar="BUNDLE",
            parser=bundle_home.named_bundle,
            autocompletion=bundle_home.completed_names,
            help=bundle_home.BUNDLE_HELP,
        ),
    ],
    *,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also print files, kernels, entry points, the parts of the memory, statistics, "
            "and the versions and options of the bake.",
        ),
    ] = False,
) -> None:
    """Print what a bundle contains and what it was made from.

    Only the manifest is read; `hearth verify` reads the rest.
    """
    (show if everything else show_summary)(bundle, open_console())
