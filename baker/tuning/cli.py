"""`hearth tune`. It knows options and exit codes; baker/tuning/tuning.py does the work."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hearthd import flags
from hearthd.baker.pipeline.bake_errors import BAKE_ERRORS
from hearthd.baker.pipeline.recipe import RecipeError, recipes
from hearthd.baker.pipeline.weights_config import opened
from hearthd.baker.presentation.byte_size import byte_size
from hearthd.baker.presentation.console import open_console
from hearthd.baker.presentation.plots import NO_PLOTS, can_draw
from hearthd.baker.progress import TerminalProgress
from hearthd.baker.tuning.checkpoint import CheckpointError
from hearthd.baker.tuning.examples import BadExample
from hearthd.baker.tuning.training_program import DivergedError
from hearthd.baker.tuning.tune_request import TuneError, TuneRequest
from hearthd.baker.tuning.tuning import tune
from hearthd.baker.tuning.tuning_report import TuningReport
from hearthd.bundle import bundle_home, kept_bundles
from hearthd.bundle.bundle_home import is_bundle
from hearthd.bundle.gguf_folder import gguf_file_in
from hearthd.models.lora.training import PROJECTIONS
from hearthd.runtime.system.interrupts import at_interrupt
from hearthd.text.control_characters import print_line

# Exceptions that end the command, and its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = dict.fromkeys(
    (*BAKE_ERRORS, BadExample, CheckpointError, DivergedError, TuneError), 1
)

_Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="GGUF file or the folder of one, Hugging Face folder, or name of a model, such as "
        "gemma3: see `hearth bake`.",
    ),
]
_Data = Annotated[
    Path,
    typer.Option(
        metavar="FILE",
        help="Examples: a JSON object per line with `messages`, as in OpenAI's chat API, or "
        "with `prompt` and `completion`. Only the tokens of answers count in the loss.",
    ),
]
_Out = Annotated[
    Path,
    typer.Option(
        metavar="FOLDER",
        help="Folder for the adapter, in PEFT's format. An interrupted run continues "
        "from the checkpoint in it.",
    ),
]
_Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        parser=bundle_home.find_bundle,
        help="GGUF file, Hugging Face folder, or bundle, also by its name in "
        f"${bundle_home.ENVIRONMENT}, whose weights are then dequantized. "
        "Default: the weights of an installed package.",
    ),
]
_Drafter = Annotated[
    bool,
    typer.Option(
        "--drafter",
        help="Tune a drafter in place of an adapter: a small layer that drafts the next tokens of "
        "this model, for `hearth bake --drafter`. The best examples are answers of this model.",
    ),
]
_Rank = Annotated[int, typer.Option(metavar="N", min=1, help="Rank of the adapter's matrices.")]
_Alpha = Annotated[
    float | None,
    typer.Option(
        metavar="A",
        help="The adapter's terms are multiplied by A / rank. Default: 2 * rank.",
    ),
]
_Targets = Annotated[
    str,
    typer.Option(metavar="NAMES", help="Matrices that the adapter changes, separated by commas."),
]
_Dropout = Annotated[
    float,
    typer.Option(
        metavar="X",
        min=0,
        max=0.9,
        help="Replace this fraction of each term's inputs by 0 in training, against overfitting.",
    ),
]
_Epochs = Annotated[int, typer.Option(metavar="N", min=1, help="Passes over the examples.")]
_Steps = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Steps, in place of --epochs.")
]
_Batch = Annotated[int, typer.Option(metavar="N", min=1, help="Examples per batch.")]
_Accumulate = Annotated[int, typer.Option(metavar="N", min=1, help="Batches per step.")]
_LearningRate = Annotated[float, typer.Option(metavar="R", help="Highest learning rate of AdamW.")]
_Warmup = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Steps in which the learning rate rises; then it falls along half a cosine. "
        "Default: a tenth of all steps.",
    ),
]
_Decay = Annotated[float, typer.Option(metavar="X", min=0, help="Weight decay of AdamW.")]
_MaxNorm = Annotated[
    float,
    typer.Option(metavar="G", help="Scale longer gradients down to this norm."),
]
_MaxLength = Annotated[
    int,
    typer.Option(metavar="N", min=1, help="Maximum tokens of an example; more are an error."),
]
_Truncate = Annotated[
    bool, typer.Option("--truncate", help="Cut the end off examples that exceed --max-length.")
]
_Validation = Annotated[
    float,
    typer.Option(
        metavar="X",
        min=0,
        max=0.9,
        help="Fraction of the examples to hold out. The adapter with the lowest loss on them is "
        "written.",
    ),
]
_ValidateEvery = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Steps between validations. Default: an epoch."),
]
_Patience = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Stop after this many validations without a lower loss."),
]
_Seed = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="Seed of the initial adapter, the order of examples and the dropout.",
    ),
]
_SaveEvery = Annotated[int, typer.Option(metavar="N", min=1, help="Steps between checkpoints.")]
_MaxMemory = Annotated[
    int | None,
    typer.Option(
        parser=byte_size,
        metavar="SIZE",
        help="Memory limit, such as 3GB. If tuning needs more by its estimate, gradients compute "
        "the values of each layer again. If that is not enough, tuning does not start.",
    ),
]

_ALL = ",".join(PROJECTIONS)

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(
    cls=flags.GroupedOptions,
    epilog="Examples:\n\n\b\n"
    "    hearth tune gemma3 --data chats.jsonl --out adapter\n"
    "    hearth tune smollm2 --data chats.jsonl --out adapter --validation 0.1 --patience 2\n"
    "    hearth tune smollm2 --drafter --data answers.jsonl --out drafter\n"
    "    hearth bake gemma3 --adapter adapter --out tuned",
)
def _tune(
    model: _Model,
    *,
    data: _Data,
    out: _Out,
    weights: _Weights = None,
    drafter: _Drafter = False,
    rank: _Rank = 8,
    alpha: _Alpha = None,
    targets: _Targets = _ALL,
    dropout: _Dropout = 0.0,
    epochs: _Epochs = 3,
    steps: _Steps = None,
    batch: _Batch = 4,
    accumulate: _Accumulate = 2,
    learning_rate: _LearningRate = 5e-4,
    warmup: _Warmup = None,
    decay: _Decay = 0.0,
    max_norm: _MaxNorm = 1.0,
    max_length: _MaxLength = 512,
    truncate: _Truncate = False,
    validation: _Validation = 0.0,
    validate_every: _ValidateEvery = None,
    patience: _Patience = None,
    seed: _Seed = 0,
    save_every: _SaveEvery = 20,
    max_memory: _MaxMemory = None,
) -> None:
    """Tune a LoRA adapter or a drafter of a model on examples.

    The model's matrices are frozen, as bf16; what is tuned and the optimizer are f32. Writes
    adapter_config.json and adapter_model.safetensors, as PEFT does, or drafter.safetensors; the
    loss as loss.svg, and checkpoint.safetensors.
    """
    if drafter and (rank, alpha, targets, dropout) != (8, None, _ALL, 0.0):
        raise TuneError(
            "--drafter: --rank, --alpha, --targets and --dropout are options of an adapter; omit "
            "them"
        )
    request = TuneRequest(
        model=model, data=data, out=out, weights=weights, drafter=drafter, rank=rank,
        alpha=2.0 * rank if alpha is None else alpha, targets=tuple(targets.split(",")),
        dropout=dropout,
        epochs=epochs, steps=steps, batch=batch, accumulate=accumulate,
        learning_rate=learning_rate, warmup=warmup, decay=decay, max_norm=max_norm,
        max_length=max_length, truncate=truncate, validation=validation,
        validate_every=validate_every, patience=patience, seed=seed, save_every=save_every,
        max_memory=max_memory,
    )  # fmt: skip
    _run(request)


def _run(request: TuneRequest) -> None:
    request = _named(request)
    console = open_console(stderr=True)
    if not can_draw():
        console.print(NO_PLOTS, highlight=False, markup=False, soft_wrap=True)
    with at_interrupt(lambda: "the same command continues from the last checkpoint"):
        tune(request, TerminalProgress(console), TuningReport(console, request.out))
    option, name = ("drafter", "drafting") if request.drafter else ("adapter", "tuned")
    weights = request.weights
    model, tuned = request.model, f"{request.model}-{name}"
    if weights is not None and not is_bundle(weights):
        model, tuned = (
            shlex.quote(str(weights)),
            shlex.quote(f"{kept_bundles.name_of(weights)}-{name}"),
        )
    out = shlex.quote(str(request.out))
    print_line(f"{request.out}: next: hearth bake {model} --{option} {out} --out {tuned}")


def _named(request: TuneRequest) -> TuneRequest:
    """The request with the name of a model and its weights, where MODEL is their path.

    Raises RecipeError or NotABundle.
    """
    if request.model in recipes():
        return request
    path = gguf_file_in(Path(request.model))
    if not path.exists() and (meant := bundle_home.similar_path(path)):
        raise RecipeError(f"MODEL: got {request.model!r}: there is no such path{meant}")
    if request.weights is not None or not path.exists() or is_bundle(path):
        known = ", ".join(recipes())
        raise RecipeError(
            f"MODEL: got {request.model!r}, expected a GGUF file, a Hugging Face folder, or one of "
            f"{known}; a bundle is given with --weights"
        )
    _, family = opened(path)
    if family.recipe not in recipes():
        raise RecipeError(
            f"MODEL: {path} has weights of {family.name}, expected weights of a language model"
        )
    return replace(request, model=family.recipe, weights=path)
