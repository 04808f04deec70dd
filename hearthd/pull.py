"""`hearth pull`: download a model that this machine can serve from the Hugging Face Hub."""

from pathlib import Path
from typing import Annotated

import typer

from hearthd.baker.hub.download import download
from hearthd.baker.hub.hub_errors import DoesNotFit, HubError
from hearthd.baker.hub.reference import BadReference
from hearthd.baker.presentation.console import open_console
from hearthd.baker.progress import TerminalProgress
from hearthd.runtime.operating_system import physical_memory
from hearthd.server.process.memory_limit import memory_limit

# Exceptions that end the command, and its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {BadReference: 2, HubError: 1}

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(no_args_is_help=True)
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
) -> None:
    """Download a model from the Hugging Face Hub.

    First the header is read, and the model's family, the memory that serving takes and the expected
    speed are printed. A model that this machine cannot serve is not downloaded. The last line is
    the path of the file or folder, for `hearth bake`.

    The cache is that of other tools of the hub: HF_HOME names its folder. A download that was
    interrupted continues. HF_TOKEN is sent to the hub, HF_ENDPOINT names a mirror, and with
    HF_HUB_OFFLINE=1 only the cache is used.

    \b
        hearth pull hf:ggml-org/gemma-3-1b-it-GGUF
        hearth pull hf:Qwen/Qwen3-0.6B-GGUF:Q8_0
    """
    try:
        path = pulled(model, force=force)
    except DoesNotFit as error:
        raise DoesNotFit(f"{error}; --force downloads it anyway") from error
    print(path)  # noqa: T201


def pulled(reference: str, *, force: bool = False) -> Path:
    """The weights of a reference, which are downloaded if this process can serve them.

    `force` downloads them in any case. Raises BadReference, HubError or OSError.
    """
    limit, memory = memory_limit(None, None), physical_memory()
    return download(
        reference,
        TerminalProgress(open_console(stderr=True)),
        max_memory=memory if limit is None else min(memory, limit.bytes),
        force=force,
    )
