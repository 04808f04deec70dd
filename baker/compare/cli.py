"""`ab`: the command line. Knows options and exit codes; no work.

Exit codes, as of `diff`: 0 within the limits, 1 outside, 2 nothing could be compared.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from baker.cli import TerminalProgress
from baker.compare.comparison import CompareOptions, compare_sides, record_side
from baker.compare.passages import STEPS, UnreadableText
from baker.compare.report.publish import publish
from baker.compare.report.summary_tables import passages_table, summary_table, verdict
from baker.compare.report.thresholds import Limits, failures
from baker.compare.sides.llama_cpp import LlamaError
from baker.compare.sides.recording import RecordingError, write_recording
from baker.compare.sides.side import SideError
from baker.parameters.irpa import BadArchive
from baker.presentation.table import terminal_table
from models.bundle import BundleError
from models.config import ConfigError
from models.dsl.types import DslError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from baker.compare.report.summary import Report

# DslError: the bundle was baked from another version of the model, so NumPy cannot follow it.
_REFUSALS = (
    BadArchive, BundleError, ConfigError, DslError, LlamaError, OSError, RecordingError, SideError,
    UnreadableText,
)  # fmt: skip
_DIFFERENT, _TROUBLE, _INTERRUPTED = 1, 2, 130

_HELP = """Compare two models, position by position, and write a report.

A and B are each one of

\b
  a bundle's folder            gemma3-270m
  with every logit exact       exact:gemma3-270m (as by serve --logits exact)
  the same, computed by NumPy  numpy:gemma3-270m (slow)
  a model for llama.cpp        model-f32.gguf (needs the extra `ab`)
  a recording of answers       tests/golden/gemma3_270m_llamacpp_f32.json
  a server's OpenAI routes     http://127.0.0.1:8080/v1#MODEL

Both read the same texts, and A's greedy answers to ten prompts. At each
position the report has the divergence KL(A || B), in nats, and whether the
most probable token is the same. Where a side tells only its best tokens, the
KL is a lower bound, and the report says of what.

A server gets prompts of token ids at POST /completions, with max_tokens 1,
temperature 0 and logprobs: a request for each position. Its key is in
OPENAI_API_KEY, or in OPENAI_API_KEY_A and OPENAI_API_KEY_B.

Exit codes: 0, 1 if a limit is not kept, 2 if nothing could be compared.
"""

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
_stderr = Console(stderr=True)


_Out = Annotated[Path, typer.Option(help="The folder for report.html, report.md and report.json.")]
_Texts = Annotated[
    list[Path] | None,
    typer.Option(help="A file to read instead of the shipped prose and code; repeatable."),
]
_Tokenizer = Annotated[
    Path | None,
    typer.Option(metavar="BUNDLE", help="Whose vocabulary it is, where no side can tell."),
]
_Record = Annotated[
    Path | None,
    typer.Option(metavar="FILE.json", help="Keep A's answers in a file; there is no B then."),
]


@app.command(help=_HELP)
def ab(
    *,
    a: Annotated[str, typer.Argument(metavar="A", help="What B is measured against.")],
    b: Annotated[str | None, typer.Argument(metavar="B", help="What is measured.")] = None,
    out: _Out = Path("ab-report"),
    text: _Texts = None,
    positions: Annotated[
        int | None, typer.Option(min=2, help="Read at most so many tokens of each text.")
    ] = None,
    answers: Annotated[
        int, typer.Option(min=0, help="Tokens of A's answer to each of ten prompts; 0: no answers.")
    ] = STEPS,
    top: Annotated[
        int, typer.Option(min=1, help="Candidates that an endpoint is asked for at each position.")
    ] = 20,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of a model in this process; default: all.")
    ] = None,
    tokenizer: _Tokenizer = None,
    record: _Record = None,
    max_kl: Annotated[
        float | None, typer.Option(min=0, help="Exit with 1 if the mean KL is larger.")
    ] = None,
    max_difference: Annotated[
        float | None,
        typer.Option(min=0, help="... if any log-probability of A's best five differs by more."),
    ] = None,
    min_agreement: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="... if the best token is the same less often, 0 to 1."),
    ] = None,
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
    progress = TerminalProgress(_stderr)
    if record is not None:
        if b is not None:
            raise typer.BadParameter("--record keeps A's answers: there is no B")
        if not answers:
            raise typer.BadParameter("--record keeps A's answers: --answers 0 leaves none")
        write_recording(record, record_side(a, options, progress))
        return
    if b is None:
        raise typer.BadParameter("wanted B, or --record FILE.json")
    limits = Limits(max_kl=max_kl, max_difference=max_difference, min_agreement=min_agreement)
    report = compare_sides(a, b, options, progress)
    report = report.model_copy(update={"failures": failures(report, limits)})
    files = publish(report, out)
    _show(report, files)
    if report.failures:
        raise typer.Exit(_DIFFERENT)


def _show(report: Report, files: Sequence[Path]) -> None:
    console = Console()
    for table in (summary_table(report), passages_table(report)):
        console.print(terminal_table(table), "")
    plain = (report.computed, *report.notes, *map(str, files))
    console.print(*plain, sep="\n", markup=False, highlight=False)
    for sentence in report.failures:
        console.print(sentence, style="red", highlight=False, markup=False)
    console.print(verdict(report), style="red" if report.failures else "green", highlight=False)


def main() -> None:
    """The entry point: every refusal is one line on stderr and exit code 2."""
    # A service manager's stop is a Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except _REFUSALS as error:
        _stderr.print(f"ab: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(_TROUBLE)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
