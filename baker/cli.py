"""`hearth bake`, also called `bake`: one command per model that can be baked.

It knows options and what to print; baker.pipeline does the work.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hearthd.baker.checks import inspection
from hearthd.baker.compiler.targets import TARGET_GROUPS, TARGET_NAMES
from hearthd.baker.pipeline.bake_encoder import (
    ENCODER_PRECISIONS,
    EncoderBakeRequest,
    bake_encoder,
)
from hearthd.baker.pipeline.bake_errors import BAKE_ERRORS
from hearthd.baker.pipeline.bake_gru import GruBakeRequest, bake_gru
from hearthd.baker.pipeline.bake_language_model import bake
from hearthd.baker.pipeline.encoder_recipe import encoder_recipes
from hearthd.baker.pipeline.recipe import BakeRequest, recipes
from hearthd.baker.precision.auto_precision import AUTO, MAX_KL
from hearthd.baker.presentation.byte_size import byte_size
from hearthd.baker.presentation.console import open_console
from hearthd.baker.progress import TerminalProgress
from hearthd.models.bundle import LanguageManifest, read_manifest
from hearthd.models.gru import FORMS
from hearthd.models.precision import ACTIVATION_BITS, KV_CACHES, NAMED_PRECISIONS, PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.baker.progress import Progress

# Exceptions that end the command, and its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = dict.fromkeys(BAKE_ERRORS, 1)
MAX_RANK = 256
# The entry point whose fusions are shown: it reads one token of one sequence.
_DECODE = "decode_1"

_Target = Annotated[
    str,
    typer.Option(
        help=f"Machine to compile for: {', '.join(TARGET_NAMES)}. {' or '.join(TARGET_GROUPS)}: "
        "a program for each of these machines, beside one copy of the weights.",
        metavar="TARGET",
    ),
]


_MaxKl = Annotated[
    float | None,
    typer.Option(
        metavar="NATS",
        min=0,
        help=f"With --precision {AUTO}: largest accepted mean KL divergence from f32, in nats per "
        f"token, measured on two short texts.  [default: {MAX_KL}]",
    ),
]
_MaxBytes = Annotated[
    int | None,
    typer.Option(
        parser=byte_size,
        metavar="SIZE",
        help=f"With --precision {AUTO}, in place of --max-kl: the most bytes that the weights "
        "take, such as 150M. Of what fits, the closest to f32 is taken.",
    ),
]
_MaxMemory = Annotated[
    int | None,
    typer.Option(
        parser=byte_size,
        metavar="SIZE",
        help="Limit for the memory that serving takes, such as 400M or 1GiB. A bundle that needs "
        "more is rejected before it is compiled; a server of the bundle keeps to the limit.",
    ),
]
_Calibration = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=f"With --precision int4-g32, int5-g32 or {AUTO}: UTF-8 text that is like what the "
        "model will read. Layers are rounded so that what they compute for it changes least. "
        "Default: a text of prose, chat and code in several languages that comes with Hearth.",
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder to write the bundle to; an existing bundle is replaced. Default: a folder in "
        "the current one, named after the model and its options.",
    ),
]
_Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="GGUF file, or Hugging Face folder with config.json, safetensors files and "
        "tokenizer.json. Default: the weights of an installed package, such as the one that "
        "Hearth's extra `demo` installs.",
    ),
]
_Size = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Size that the weights must have, such as 270m. Default: any."
    ),
]
_Precision = Annotated[
    str | None,
    typer.Option(
        metavar="PRECISION",
        help="How weight matrices are stored. "
        + " ".join(f"{name}: {PRECISIONS[name].help}." for name in NAMED_PRECISIONS)
        + f" {AUTO}: the fastest within --max-kl and --max-memory, and fewer bits for matrices of "
        "layers that matter less.",
    ),
]
_KvCache = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help=f"How keys and values are stored: {', '.join(KV_CACHES)}. int8 takes half the memory "
        "of f16. Default: f16 with weights of integers, otherwise f32.",
    ),
]
_Activations = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="What products with weights of integers round activations to: "
        f"{', '.join(ACTIVATION_BITS)}. int8 makes prompts faster to read and answers less exact; "
        "it needs weights of integers. Default: int8 for "
        + ", ".join(name for name in NAMED_PRECISIONS if PRECISIONS[name].rounding == "int8")
        + f", otherwise int16; {AUTO} measures both.",
    ),
]
_Context = Annotated[
    int | None,
    typer.Option(metavar="N", help="Tokens per slot: the longest prompt together with its answer."),
]
_Slots = Annotated[
    int | None,
    typer.Option(metavar="N", help="Requests that the server can run at the same time."),
]
_Adapter = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="LoRA adapter to merge into the weights, as `hearth tune` and PEFT write it.",
    ),
]

_Adapters = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Places for LoRA adapters that the server loads while it runs. Requests with "
        "different adapters are computed together.",
    ),
]
_Rank = Annotated[
    int | None,
    typer.Option(
        metavar="R",
        min=1,
        max=MAX_RANK,
        help="With --adapters: the largest rank of an adapter.  [default: 16]",
    ),
]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    epilog="Example:\n\n\b\n    hearth bake gemma3 --out gemma3-270m\n    hearth serve gemma3-270m",
)


@app.callback()
def _bake() -> None:
    """Compile a model and its weights into a bundle.

    The bundle is a folder that `hearth serve`, `generate` and `chat` load without a compiler. Bake
    it on any machine, for the machine named by --target.
    """


def bake_model(
    *,
    context_: typer.Context,
    weights: _Weights = None,
    size: _Size = None,
    target: _Target = "host",
    precision: _Precision = None,
    kv_cache: _KvCache = None,
    activations: _Activations = None,
    context: _Context = None,
    slots: _Slots = None,
    max_memory: _MaxMemory = None,
    max_kl: _MaxKl = None,
    max_bytes: _MaxBytes = None,
    calibration: _Calibration = None,
    adapter: _Adapter = None,
    adapters: _Adapters = None,
    rank: _Rank = None,
    out: _Out = None,
) -> None:
    """Bake the model that the command is named after."""
    model = context_.command.name
    assert model is not None, "a command without a name"
    request = BakeRequest(
        model=model,
        weights=weights,
        size=size,
        target=target,
        precision=precision,
        kv_cache=kv_cache,
        activations=activations,
        context=context,
        slots=slots,
        calibration=calibration,
        out=out,
        max_memory=max_memory,
        max_kl=max_kl,
        max_bytes=max_bytes,
        adapter=adapter,
        adapters=adapters,
        rank=rank,
    )
    _run(lambda progress: bake(request, progress))


def _run(work: Callable[[Progress], Path]) -> None:
    """Bake, and print the result."""
    console = open_console(stderr=True)
    start = time.perf_counter()
    path = work(TerminalProgress(console))
    manifest = read_manifest(path)
    provenance = manifest.provenance
    for tried in provenance.tried:
        print(tried.text)  # noqa: T201
    print(f"kernels: {provenance.kernels.text}")  # noqa: T201
    if manifest.other_programs:
        print(f"programs: {', '.join(one.text for one in manifest.programs)}")  # noqa: T201
    if isinstance(manifest, LanguageManifest):
        print(f"fused: {inspection.fusions_text(manifest, _DECODE)}")  # noqa: T201
    size = sum(file.stat().st_size for file in path.iterdir())
    print(f"{path}: {size / 1e6:.1f} MB in {time.perf_counter() - start:.0f} s")  # noqa: T201
    print(f"next: hearth serve {path}")  # noqa: T201


def _model_help(model: str) -> str:
    """The help of a model's command, with the sizes and the defaults of each."""
    rows = (
        f"  {recipe.size:8} --precision {recipe.defaults.precision} "
        f"--context {recipe.defaults.context} --slots {recipe.defaults.slots}"
        for recipe in recipes()[model]
    )
    sizes = ", ".join(recipe.size for recipe in recipes()[model])
    return "\n".join((f"Bake {model} ({sizes}).\n\nDefaults of each size:\n\n\b", *rows))


for _model in recipes():
    _epilog = (
        f"Examples:\n\n\b\n    hearth bake {_model} --out {_model}\n"
        f"    hearth bake {_model} --weights model.gguf --context 4096\n"
        f"    hearth bake {_model} --target aarch64 --max-memory 1GiB --precision {AUTO}"
    )
    app.command(_model, help=_model_help(_model), epilog=_epilog)(bake_model)


def bake_encoder_model(
    *,
    context_: typer.Context,
    weights: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="Hugging Face folder with config.json, safetensors files and tokenizer.json, also "
            "as sentence-transformers saves it; or GGUF file.",
        ),
    ],
    target: _Target = "host",
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="PRECISION",
            help=f"How weight matrices are stored: {', '.join(ENCODER_PRECISIONS)}.",
        ),
    ] = None,
    context: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of the longest text.")
    ] = None,
    out: _Out = None,
) -> None:
    """Bake the encoder that the command is named after."""
    model = context_.command.name
    assert model is not None, "a command without a name"
    request = EncoderBakeRequest(
        model=model, weights=weights, precision=precision, context=context, target=target, out=out
    )
    _run(lambda progress: bake_encoder(request, progress))


for _model, _defaults in encoder_recipes().items():
    app.command(
        _model,
        help=f"Bake {_model}, an encoder that embeds texts or scores pairs of them.\n\n"
        f"Defaults: --precision {_defaults.precision} --context {_defaults.lengths[-1]}, or the "
        "longest text that the model was trained for.",
        epilog=f"Example:\n\n\b\n    hearth bake {_model} --weights FOLDER --out {_model}",
    )(bake_encoder_model)


@app.command(
    "gru",
    epilog="Example:\n\n\b\n    hearth bake gru --weights gru.safetensors --steps 16 --out gru",
)
def bake_gru_model(
    *,
    weights: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Safetensors file with the state_dict of a torch.nn.GRU."
        ),
    ],
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", help="Length of the sequence that `run` takes, in steps."),
    ] = None,
    batch: Annotated[int | None, typer.Option(metavar="N", help="Sequences per call.")] = None,
    batch_first: Annotated[
        bool,
        typer.Option(
            "--batch-first",
            help="`run` takes and returns (batch, steps, ...) instead of (steps, batch, ...).",
        ),
    ] = False,
    form: Annotated[
        str | None,
        typer.Option(metavar="FORM", help=f"How the steps are compiled: {', '.join(FORMS)}."),
    ] = None,
    target: _Target = "host",
    out: _Out = None,
) -> None:
    """Bake a GRU from PyTorch weights.

    The bundle has the function `run` for a whole sequence, and `step` for a single step. Layers,
    directions and biases are those of the weights. A bidirectional GRU has no `step`. Defaults not
    shown here come from configs/arrays/gru.toml.
    """
    request = GruBakeRequest(
        weights=weights,
        steps=steps,
        batch=batch,
        batch_first=batch_first,
        form=form,
        target=target,
        out=out,
    )
    _run(lambda progress: bake_gru(request, progress))
