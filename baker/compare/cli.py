"""`hearth compare`. It knows options and exit codes; baker.compare does the work.

Exit codes, as of `diff`: 0 within the limits, 1 outside, 2 nothing could be compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hearthd import flags
from hearthd.baker.compare.comparison import CompareOptions, compare_sides, record_side
from hearthd.baker.compare.measurement.passages import STEPS, UnreadableText
from hearthd.baker.compare.report.publish import publish
from hearthd.baker.compare.report.summary_tables import passages_table, summary_table, verdict
from hearthd.baker.compare.report.thresholds import Limits, failures
from hearthd.baker.compare.sides.llama_cpp import LlamaError
from hearthd.baker.compare.sides.recording import RecordingError, write_recording
from hearthd.baker.compare.sides.side import SideError
from hearthd.baker.parameters.irpa import BadArchive
from hearthd.baker.presentation.console import open_console
from hearthd.baker.presentation.plots import NO_PLOTS, can_draw
from hearthd.baker.presentation.table import terminal_table
from hearthd.baker.progress import TerminalProgress
from hearthd.bundle import BundleError, bundle_home
from hearthd.bundle.lora.adapter_settings import BadAdapter
from hearthd.models.config import ConfigError
from hearthd.models.dsl.types import DslError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.baker.compare.report.summary import Report

# DslError: the bundle was baked from another version of the model, so NumPy cannot follow it.
_ERRORS = (
    BadAdapter, BadArchive, BundleError, ConfigError, DslError, LlamaError, OSError,
    RecordingError, SideError, UnreadableText,
)  # fmt: skip
_DIFFERENT, _FAILED = 1, 2
# Exceptions that end the command, and its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = dict.fromkeys(_ERRORS, _FAILED)

_HELP = """Compare the predictions of two models and write a report.

A is the reference, B the candidate. A bundle is a folder, or a name that `hearth list` shows.
Each is one of:

\b
  a bundle                           gemma3-270m
  a bundle, with a LoRA adapter      gemma3-270m+adapter (needs places: bake --adapters)
  a bundle, with exact logits        exact:gemma3-270m
  a bundle, computed by NumPy        numpy:gemma3-270m (slow)
  a GGUF file, run by llama.cpp      model-f32.gguf (needs the extra `compare`)
  a recording made with --record     gemma3.json
  an OpenAI-compatible server        http://127.0.0.1:8080/v1#MODEL

Both read the same texts and A's greedy answers to ten prompts. At each position, the report has
the KL divergence KL(A || B) in nats and whether both predict the same most probable token. If a
model reports only its most probable tokens, the KL divergence is a lower bound, and the report
says so.

A server gets one request per position: POST /completions with token ids, max_tokens 1,
temperature 0 and logprobs. Set its key in OPENAI_API_KEY, or in OPENAI_API_KEY_A and
OPENAI_API_KEY_B.

Exit codes: 0 if B is within the limits, 1 if it is not, 2 if the models could not be compared.
"""

_EPILOG = """Examples:

\b
    hearth compare model-f32.gguf gemma3-270m --max-kl 0.001
    hearth compare model-f32.gguf --record reference.json
    hearth compare reference.json gemma3-270m --out report
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_Out = Annotated[
    Path,
    typer.Option(metavar="FOLDER", help="Where to write report.html, report.md and report.json."),
]
_Texts = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Text to read. Repeatable. Default: a text in English and one of Python code.",
    ),
]
_Positions = Annotated[
    int | None,
    typer.Option(metavar="N", min=2, help="Maximum tokens to read of each text. Default: all."),
]
_Tokenizer = Annotated[
    Path | None,
    typer.Option(
        metavar="BUNDLE",
        parser=bundle_home.named_bundle,
        autocompletion=bundle_home.completed_names,
        help="Bundle whose tokenizer to use if neither A nor B has one.",
    ),
]
_Record = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json",
        help="Record A's answers in this file instead of comparing; there is no B.",
    ),
]
_Answers = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, help="Tokens of A's answer to each of ten prompts; 0: no answers."
    ),
]
_Top = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, help="Log-probabilities to request from a server at each position."
    ),
]
_A = Annotated[
    str,
    typer.Argument(
        metavar="A", autocompletion=bundle_home.completed_names, help="Reference model."
    ),
]
_B = Annotated[
    str | None,
    typer.Argument(
        metavar="B", autocompletion=bundle_home.completed_names, help="Candidate model."
    ),
]
_Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="CPU threads for a model in this process. Default: all cores."
    ),
]
_MaxKl = Annotated[
    float | None,
    typer.Option(
        metavar="NATS", min=0, help="Limit: largest accepted mean KL divergence per token."
    ),
]
_MaxDifference = Annotated[
    float | None,
    typer.Option(
        metavar="NATS",
        min=0,
        help="Limit: largest accepted difference of a log-probability among A's five most "
        "probable tokens.",
    ),
]
_MinAgreement = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0,
        max=1,
        help="Limit: smallest accepted fraction of positions, 0 to 1, at which both predict "
        "the same most probable token.",
    ),
]


@app.command(cls=flags.GroupedOptions, help=_HELP, epilog=_EPILOG)
def _compare(
    *,
    a: _A,
    b: _B = None,
    out: _Out = Path("compare-report"),
    text: _Texts = None,
    positions: _Positions = None,
    answers: _Answers = STEPS,
    top: _Top = 20,
    threads: _Threads = None,
    tokenizer: _Tokenizer = None,
    record: _Record = None,
    max_kl: _MaxKl = None,
    max_difference: _MaxDifference = None,
    min_agreement: _MinAgreement = None,
) -> None:
    """Compare, or record: see _HELP."""
    options = CompareOptions(
        texts=tuple(text or ()),
        positions=positions,
        answers=answers,
        tokenizer=tokenizer,
        top=top,
        threads=threads,
    )
    progress = TerminalProgress(open_console(stderr=True))
    if record is not None:
        if b is not None:
            raise typer.BadParameter("--record takes no B.")
        if not answers:
            raise typer.BadParameter("--record needs answers: --answers must be at least 1.")
        write_recording(record, record_side(a, options, progress))
        return
    if b is None:
        raise typer.BadParameter("B is missing; give B or --record FILE.json.")
    limits = Limits(max_kl=max_kl, max_difference=max_difference, min_agreement=min_agreement)
    report = compare_sides(a, b, options, progress)
    report = report.model_copy(update={"failures": failures(report, limits)})
    files = publish(report, out)
    _show(report, files)
    if report.failures:
        raise typer.Exit(_DIFFERENT)


def _show(report: Report, files: Sequence[Path]) -> None:
    console = open_console()
    for table in (summary_table(report), passages_table(report)):
        console.print(terminal_table(table), "")
    plots = () if can_draw() else (NO_PLOTS,)
    plain = (report.computed, *report.notes, *plots, *map(str, files))
    console.print(*plain, sep="\n", markup=False, highlight=False, soft_wrap=True)
    for sentence in report.failures:
        console.print(sentence, style="red", highlight=False, markup=False, soft_wrap=True)
    style = "red" if report.failures else "green"
    console.print(verdict(report), style=style, highlight=False, soft_wrap=True)
