"""`bake`: the command line. Knows options, progress on the terminal and exit codes; no work."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from baker.atomic_folder import BakeError
from baker.checks import inspection, verification
from baker.checks.reproduction import changes, reproduce
from baker.compiler.compilation import CompileError
from baker.compiler.kernel_objects import KernelError
from baker.compiler.targets import TARGET_NAMES, TargetError
from baker.parameters.quantization import NotFiniteError
from baker.pipeline.bake_gru import GruBakeRequest, bake_gru
from baker.pipeline.bake_language_model import bake
from baker.pipeline.prompt_prefix import PrefixError
from baker.pipeline.recipe import BakeRequest, RecipeError, recipes
from baker.precision.auto_precision import AUTO, MAX_KL
from baker.weights.source import WeightsError
from models.bundle import BundleError, read_manifest
from models.config import ConfigError
from models.dsl.types import DslError
from models.gru import FORMS
from models.program import STORAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from baker.pipeline.shared_stages import Progress as StageProgress

_REFUSALS = (
    BakeError, BundleError, CompileError, ConfigError, DslError, KernelError,
    NotFiniteError, OSError, PrefixError, RecipeError, TargetError, WeightsError,
)  # fmt: skip
_INTERRUPTED = 130

_Target = Annotated[
    str, typer.Option(help=f"The machine to compile for: {', '.join(TARGET_NAMES)}.")
]


def _bytes(text: str) -> int:
    """A size as `serve` takes it: a number of bytes, or one with a unit."""
    try:
        return TypeAdapter(ByteSize).validate_python(text)
    except ValidationError:
        raise typer.BadParameter(f"{text!r} is no size: give bytes, or 400M, or 1GiB") from None


_MaxKl = Annotated[
    float | None,
    typer.Option(
        min=0,
        help=f"With --precision {AUTO}: how far next-token probabilities may be from those of "
        f"F32, as the mean KL divergence in nats; measured on two short texts. "
        f"[default: {MAX_KL}]",
    ),
]
_MaxMemory = Annotated[
    int | None,
    typer.Option(
        parser=_bytes,
        metavar="SIZE",
        help="Memory that serving may take, as 400M or 1GiB: refused before compiling if the "
        "bundle needs more, and the limit of whoever serves it.",
    ),
]
_Out = Annotated[Path | None, typer.Option(help="The bundle's folder. A bundle there is replaced.")]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Bake a model once, ahead of time, into a bundle that `serve` loads with no compiler.",
    epilog="Try: bake gemma3 --out gemma && serve gemma",
)
_console = Console(stderr=True)


def bake_model(
    *,
    context_: typer.Context,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="A GGUF file, or a Hugging Face folder (config.json, safetensors, "
            "tokenizer.json). Without it, those of an installed package: see the README."
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Insist on a size, such as 270m: see configs/.")
    ] = None,
    target: _Target = "host",
    precision: Annotated[
        str | None,
        typer.Option(
            help=f"How matrices are stored: {', '.join(STORAGE)}, or {AUTO}. f32 is exact, bf16 "
            "close to it in half the memory, int8-g32 as close, in a quarter, and fastest. "
            f"{AUTO} takes the fastest that keeps to --max-kl and --max-memory."
        ),
    ] = None,
    context: Annotated[
        int | None, typer.Option(help="Tokens that a slot holds, prompt and answer together.")
    ] = None,
    slots: Annotated[
        int | None, typer.Option(help="Sequences that the server can hold at once.")
    ] = None,
    max_memory: _MaxMemory = None,
    max_kl: _MaxKl = None,
    prefix: Annotated[
        Path | None,
        typer.Option(
            help="A text that prompts will begin with, markup included: the bundle has it read "
            "already. Only for a target that runs here."
        ),
    ] = None,
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
        context=context,
        slots=slots,
        prefix=prefix,
        out=out,
        max_memory=max_memory,
        max_kl=max_kl,
    )
    _run(lambda progress: bake(request, progress))


def _run(work: Callable[[StageProgress], Path]) -> None:
    """Bake, and say what became of it."""
    began = time.perf_counter()
    try:
        path = work(TerminalProgress(_console))
    except KeyboardInterrupt:
        _console.print("bake: interrupted, nothing was left behind")
        raise typer.Exit(_INTERRUPTED) from None
    origin = read_manifest(path).provenance
    for tried in origin.tried:
        print(tried.text)  # noqa: T201
    print(f"kernels: {origin.kernels.text}")  # noqa: T201
    bytes_ = sum(file.stat().st_size for file in path.iterdir())
    print(f"{path}: {bytes_ / 1e6:.1f} MB in {time.perf_counter() - began:.0f} s")  # noqa: T201
    print(f"next: serve {path}")  # noqa: T201


for _model in recipes():
    _help = f"Bake {_model}. What is left out comes from configs/{_model}-SIZE.toml."
    app.command(_model, help=_help)(bake_model)


@app.command("gru")
def bake_gru_model(
    *,
    weights: Annotated[Path, typer.Option(help="A safetensors file of torch.nn.GRU's state_dict.")],
    steps: Annotated[
        int | None, typer.Option(help="Steps of the sequence that `run` reads at once.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Sequences beside each other.")] = None,
    batch_first: Annotated[
        bool, typer.Option("--batch-first", help="`run` takes and gives (batch, steps, ...).")
    ] = False,
    form: Annotated[
        str | None, typer.Option(help=f"How the steps are lowered: {', '.join(FORMS)}.")
    ] = None,
    target: _Target = "host",
    out: _Out = None,
) -> None:
    """Bake a GRU: `run` reads a whole sequence, `step` one step of it.

    What is left out comes from configs/arrays/gru.toml. Layers, directions and biases are those
    of the weights. `step` is there unless the GRU reads in both directions.
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


@app.command("inspect")
def inspect(bundle: Annotated[Path, typer.Argument(help="The bundle's folder.")]) -> None:
    """Print what is in a bundle: model, files, entry points, statistics, and its sources."""
    inspection.show(bundle, Console())


@app.command("verify")
def verify(bundle: Annotated[Path, typer.Argument(help="The bundle's folder.")]) -> None:
    """Check a bundle: digests, graph, sources, and its golden values on this machine.

    Says what was checked, and what is not as it was when the bundle was baked.
    """
    if not verification.verify(bundle, Console()):
        raise typer.Exit(1)


@app.command("reproduce")
def reproduce_bundle(
    bundle: Annotated[Path, typer.Argument(help="The bundle's folder.")],
    *,
    weights: Annotated[
        Path | None,
        typer.Option(help="The weights that it was baked from, if they came from no package."),
    ] = None,
) -> None:
    """Bake a bundle again, elsewhere, and compare the two byte for byte.

    Weights, options and prefix are those of its provenance. Says first what is not as it was when
    it was baked, such as another version of the compiler. Exit status 1 if a byte differs.
    """
    for change in changes(read_manifest(bundle)):
        print(f"changed: {change}")  # noqa: T201
    differences = reproduce(bundle, weights, TerminalProgress(_console))
    for difference in differences:
        print(difference.message)  # noqa: T201
    if differences:
        raise typer.Exit(1)
    print(f"{bundle}: baked again, equal in every byte")  # noqa: T201


class TerminalProgress:
    """Shows the running stage with its time, and leaves a line of each that is done."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextlib.contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:
        """See shared_stages.Progress."""
        began = time.perf_counter()
        if self._console.is_terminal:
            with self._bar(total) as bar:
                task = bar.add_task(name, total=total or None)
                yield lambda units: bar.advance(task, units)
        else:
            yield lambda _: None
        self._console.print(f"{time.perf_counter() - began:6.1f} s  {name}", highlight=False)

    def _bar(self, total: int) -> Progress:
        columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
        if total:
            columns.insert(2, BarColumn())
        return Progress(*columns, console=self._console, transient=True)


def main() -> None:
    """The entry point: every refusal is one line on stderr and exit code 1."""
    # A service manager's stop is a Ctrl-C: what was begun is cleared away.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except _REFUSALS as error:
        _console.print(f"bake: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(1)
