"""`hearth inspect`. A bundle needs nothing of the baker's extra, so it runs on a device, too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hearthd import flags
from hearthd.baker.checks.inspection import show, show_summary
from hearthd.baker.presentation.console import open_console
from hearthd.bundle import BundleError, bundle_home
from hearthd.find_or_bake import find
from hearthd.model_weights import needs_baker

# Exceptions that end the command, and its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {BundleError: 1}

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(
    cls=flags.GroupedOptions,
    epilog="Example:\n\n\b\n    hearth inspect gemma3-270m\n    hearth inspect model.gguf",
)
def _inspect(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            autocompletion=bundle_home.completed_names,
            help=f"{bundle_home.BUNDLE_HELP} Or a GGUF file (any shard of a split one) or the "
            "folder of one, a Hugging Face folder, hf:ORG/REPO[:QUANT] on the hub, "
            "ollama:NAME[:TAG], or the name of a model that an installed package has.",
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
    """Print what a bundle contains, or what weights are.

    Of a bundle, only the manifest is read; `hearth verify` reads the rest. Of weights that are not
    baked yet: family, size, context, vocabulary, types of the tensors, and whether they have a chat
    template. Of weights that `hearth run` baked: their bundle.
    """
    found = find(model, None, {})
    if isinstance(found, Path):
        (show if everything else show_summary)(found, open_console())
        return
    with needs_baker():
        from hearthd.baker.checks.weights_page import show_weights

        show_weights(found, open_console())
