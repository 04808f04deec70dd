"""`hearth pull`: download a model that this machine can serve from the Hugging Face Hub."""

from pathlib import Path
from typing import Annotated

import typer

from hearthd import flags
from hearthd.baker.hub.hub_errors import DoesNotFit, HubError
from hearthd.baker.hub.reference import BadReference
from hearthd.baker.presentation.console import open_console
from hearthd.baker.progress import JsonProgress, TerminalProgress, print_json
from hearthd.bundle import BundleError, bundle_home
from hearthd.find_or_bake import find_or_bake
from hearthd.hub_weights import pulled

# Exceptions that end the command, and its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {BadReference: 2, HubError: 1, BundleError: 1}

_NoMmproj = Annotated[
    bool, typer.Option("--no-mmproj", help="Leave out the projector of images beside a GGUF file.")
]
_Bake = Annotated[
    bool, typer.Option("--bake", help="Also bake the model into --home, as `hearth run` does.")
]
_Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="With --bake: name of the bundle, unless it is baked already.",
    ),
]
_Home = Annotated[
    Path, typer.Option(metavar="FOLDER", envvar=bundle_home.ENVIRONMENT, help=bundle_home.HELP)
]
_Json = Annotated[
    bool, typer.Option("--json", help="Report the progress and the path as JSON lines.")
]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=flags.GroupedOptions, no_args_is_help=True)
def _pull(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="hf:ORG/REPO, hf:ORG/REPO:QUANT, hf:ORG/REPO/FILE.gguf, or a link to a model on "
            "huggingface.co. Without QUANT: Q4_K_M, else Q8_0, else the first GGUF file; the "
            "safetensors files if there are none.",
            show_default=False,
        ),
    ],
    *,
    force: Annotated[
        bool,
        typer.Option("--force", help="Download a model that is not supported or does not fit."),
    ] = False,
    no_mmproj: _NoMmproj = False,
    bake: _Bake = False,
    name: _Name = None,
    home: _Home = bundle_home.DEFAULT,
    as_json: _Json = False,
) -> None:
    """Download a model from the Hugging Face Hub.

    First the header is read, and the model's family, the memory that serving takes and the expected
    speed are printed. A model that this machine cannot serve is not downloaded. The last line is
    the path of the file or folder, for `hearth bake`.

    The cache is shared with other tools of the hub: HF_HOME names its folder. A download that was
    interrupted continues. HF_TOKEN is sent to the hub, HF_ENDPOINT names a mirror, and with
    HF_HUB_OFFLINE=1 only the cache is used.

    \b
        hearth pull hf:ggml-org/gemma-3-1b-it-GGUF
        hearth pull hf:Qwen/Qwen3-0.6B-GGUF:Q8_0
        hearth pull hf:Qwen/Qwen3-0.6B-GGUF --bake --name qwen
    """
    progress = JsonProgress() if as_json else TerminalProgress(open_console(stderr=True))
    try:
        path = pulled(model, progress, force=force, images=not no_mmproj)
    except DoesNotFit as error:
        raise DoesNotFit(f"{error}; --force downloads it anyway") from error
    if bake:
        with progress.stage(f"bake {path.name}"):
            path = find_or_bake(str(path), home, {"mmproj": "none"} if no_mmproj else {}, name=name)
    if as_json:
        print_json(path=str(path))
    else:
        print(path)  # noqa: T201
