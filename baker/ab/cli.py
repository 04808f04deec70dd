"""`ab`: the command line. Knows options, progress on the terminal and exit codes; no work.

Exit codes, as of `diff`: 0 within the tolerance, 1 outside, 2 nothing could be compared.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from baker.ab.compare import TOLERANCES, failures
from baker.ab.llama import LlamaError
from baker.ab.recording import Recording, RecordingError, read_recording, write_recording
from baker.ab.report import Report
from baker.ab.trial import STEPS, default_prompts, record_llama, run
from baker.irpa import BadArchive
from baker.reference import open_reference
from models.bundle import BundleError, LanguageManifest, read_manifest_of
from models.config import ConfigError
from models.dsl.types import DslError
from server.runtime.load import open_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# DslError: the bundle was baked from another version of the model, so NumPy cannot follow it.
_REFUSALS = (
    BadArchive, BundleError, ConfigError, DslError, LlamaError, OSError, RecordingError,
)  # fmt: skip
_DIFFERENT, _TROUBLE, _INTERRUPTED = 1, 2, 130

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
_stderr = Console(stderr=True)


@app.command()
def ab(
    *,
    bundle: Annotated[Path, typer.Argument(help="The bundle's folder.")],
    reference: Annotated[
        Path | None,
        typer.Option(help="A recording to compare with. With --llama-cpp: only its prompts."),
    ] = None,
    llama_cpp: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.gguf",
            help="Record llama.cpp's answers on this model now and compare with them. An F32 GGUF "
            "of the same weights is the exact one. Needs the extra `ab`.",
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Keep what --llama-cpp recorded in this file.")
    ] = None,
    blame: Annotated[
        int,
        typer.Option(
            min=0,
            max=STEPS,
            help="Steps of each case that NumPy computes too, to tell the model's differences from "
            "the compiler's. NumPy is slow: on two cores the ten prompts of the 270M take it about "
            "a minute, each further step 2 to 6 s in all. 0 leaves it out.",
        ),
    ] = 4,
    json_to: Annotated[
        Path | None,
        typer.Option("--json", help="Write the results as JSON; - is the standard output."),
    ] = None,
) -> None:
    """Compare a bundle's answers with llama.cpp's, token by token.

    Each recorded answer is read teacher-forced: the recorded token follows whatever the bundle
    says. Exit code 1: a difference is larger than the tolerance of the bundle's precision.
    """
    if reference is None and llama_cpp is None:
        raise typer.BadParameter("wanted --reference FILE.json, --llama-cpp MODEL.gguf or both")
    if save is not None and llama_cpp is None:
        raise typer.BadParameter("--save keeps what --llama-cpp recorded: wanted --llama-cpp")
    manifest = read_manifest_of(bundle, LanguageManifest)
    recording = _expectations(reference, llama_cpp, manifest.context)
    if save is not None:
        write_recording(save, recording)
    report = _compare(bundle, recording, blame)
    to_stdout = json_to is not None and str(json_to) == "-"
    report.show(_stderr if to_stdout else Console())
    if to_stdout:
        sys.stdout.write(report.to_json())
    elif json_to is not None:
        json_to.write_text(report.to_json(), encoding="utf-8")
    if report.failures:
        raise typer.Exit(_DIFFERENT)


def _expectations(reference: Path | None, model: Path | None, context: int) -> Recording:
    recorded = None if reference is None else read_recording(reference)
    if model is None:
        assert recorded is not None, "neither a recording nor a model"
        return recorded
    prompts = (
        default_prompts()
        if recorded is None
        else {case.name: case.prompt for case in recorded.cases}
    )
    with _progress(len(prompts)) as announce:
        return record_llama(model, prompts, context, announce)


def _compare(bundle: Path, recording: Recording, blame_steps: int) -> Report:
    manifest, runtime = open_bundle(bundle, threads=None)
    numpy = open_reference(bundle, manifest) if blame_steps else None
    phases = 2 if blame_steps else 1
    with _progress(len(recording.cases) * phases) as announce:
        results = tuple(run(runtime, numpy, recording, blame_steps, announce))
    tolerance = TOLERANCES[manifest.precision]
    return Report(
        bundle=str(bundle),
        precision=manifest.precision,
        recording=recording.meta,
        tolerance=tolerance,
        cases=results,
        failures=failures(results, tolerance),
    )


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar of `total` parts, and a function that names the part that begins."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    silent = not _stderr.is_terminal  # else a blank line is left in a log
    with Progress(*columns, console=_stderr, transient=True, disable=silent) as bar:
        task = bar.add_task("", total=total)
        begun = False

        def announce(what: str) -> None:
            nonlocal begun
            bar.update(task, description=what, advance=int(begun))
            begun = True

        yield announce


def main() -> None:
    """The entry point: every refusal is one line on stderr and exit code 2."""
    try:
        app()
    except _REFUSALS as error:
        _stderr.print(f"ab: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(_TROUBLE)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
