"""`hearth generate` and `hearth chat`, also called `hearth run`.

Their flags for sampling are the fields of an API request, with the same names and ranges.
"""

import dataclasses
import json
import shlex
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hearthd import flags
from hearthd.bake_flags import BakesFirst
from hearthd.bundle import MIN_CONTEXT, BundleError, bundle_home
from hearthd.find_or_bake import MODEL_HELP, find_or_bake
from hearthd.later_verification import LaterVerification
from hearthd.model_weights import is_prompt
from hearthd.runtime.system.interrupts import keyboard_interrupts
from hearthd.server.api.generation_fields import GenerationFields
from hearthd.server.terminal.bundle_commands import Home
from hearthd.server.terminal.standard_input import STDIN, read_stdin, stdin_is_piped
from hearthd.server.terminal.typed_fields import NOT_HERE, ChatFields, fields_of
from hearthd.text.control_characters import escape_controls, print_line
from hearthd.text.errors import InvalidRequest, RequestError
from hearthd.text.overflow import Overflow

# Exceptions that end the commands, each with its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {flags.BadFlag: 2, BundleError: 1, RequestError: 1}

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.server.services.language_service import LanguageService
    from hearthd.server.terminal.chat import Chat
    from hearthd.text.answer import AnswerSummary

# Imported while a model is baked.
_FOR_ANSWERS = ("services.language_service", "terminal.chat_loop", "terminal.message_reader")

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", autocompletion=bundle_home.completed_names, help=MODEL_HELP),
]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="CPU threads. Default: one per physical core."),
]
Context = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=MIN_CONTEXT,
        help="Tokens for the prompt together with its answer, at most the context of the bundle. "
        "Default: all of it; of a bundle with `hearth bake --context auto`, as much as memory "
        "allows.",
    ),
]
_MAX_TOKENS = 256
NewTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Maximum number of new tokens. Default: num_predict of the model's Modelfile, or "
        f"{_MAX_TOKENS}.",
    ),
]
OnOverflow = Annotated[
    Overflow,
    typer.Option(
        "--overflow",
        metavar="error|truncate-middle",
        help="What to do with a prompt that is longer than the context: truncate-middle drops "
        "tokens in its middle, and the last line says how many.",
    ),
]

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object when the answer is complete.")
]

_RUN_HELP = """Chat with a model, which is baked first if it is missing.

    The same as `hearth chat`: with PROMPT, one answer. What is baked is kept in --home and found
    again, also by `serve`, `generate` and `inspect`. With other options of the bake it is another
    bundle.

    \b
        hearth run model.gguf
        hearth run model.gguf "Name a color."
        hearth run Qwen3-0.6B/ --precision int8-g32
        hearth run smollm2 --system "Answer in one sentence." --temperature 0
    """


def _typer() -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None)


generate = _typer()
chat = _typer()
run = _typer()


@generate.command(cls=BakesFirst)
@flags.takes(GenerationFields, leave_out=NOT_HERE, group="Generation")
def _generate(
    context_: typer.Context,
    model: Model,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT",
            help="Text to continue. Without it, or with -, the text is read from standard input. "
            "What is piped to the command beside PROMPT is put before it, and a blank line.",
            show_default=False,
        ),
    ] = None,
    *,
    max_tokens: NewTokens = None,
    as_json: AsJson = False,
    threads: Threads = None,
    context: Context = None,
    overflow: OnOverflow = "error",
    home: Home = bundle_home.DEFAULT,
    **options: Any,
) -> None:
    """Continue a prompt, in this terminal.

    Prints the text as the model generates it to stdout, then token counts and speed to stderr.

    \b
        hearth generate gemma3-270m "The capital of France is" --max-tokens 16 --temperature 0
        hearth generate gemma3-270m < prompt.txt
    """
    fields = fields_of(GenerationFields, options)
    _require_model(context_, model, prompt, home)
    prompt = _read_prompt(prompt)
    pieces: list[str] = []
    bundle = find_or_bake(model, home, context_.obj, purpose="text", meanwhile=_import_for_answers)
    from hearthd.server.terminal.session import Session

    with Session(_open(bundle, threads, context, overflow)) as session:
        fields.take_defaults(session.service.sampling)
        limit = max_tokens or session.service.sampling.get("num_predict", _MAX_TOKENS)
        request = fields.completion(prompt, max_tokens=limit, logprobs=None)
        summary = session.answer(request, pieces.append if as_json else _show)
    _show_end(summary, pieces if as_json else None)
    _finish(LaterVerification(bundle))


@chat.command(cls=BakesFirst)
@flags.takes(ChatFields, leave_out=NOT_HERE, group="Generation")
def _chat(
    context_: typer.Context,
    model: Model,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT",
            help="Message to answer, after what is piped to the command; with -, that alone. The "
            "command ends then. Without PROMPT, a conversation begins.",
            show_default=False,
        ),
    ] = None,
    *,
    system: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="System message: instructions for the whole conversation."
        ),
    ] = None,
    as_json: AsJson = False,
    threads: Threads = None,
    context: Context = None,
    overflow: OnOverflow = "error",
    home: Home = bundle_home.DEFAULT,
    **options: Any,
) -> None:
    """Chat with a model, in this terminal.

    The model must have a chat template. /help lists the commands, such as /set, /save and /model.
    Earlier messages are kept in $HEARTH_HISTORY, which nobody else can read; empty keeps none.

    \b
        hearth chat smollm2-135m --system "Answer in one sentence."
        hearth chat smollm2-135m "Summarize this text." < notes.txt
    """
    fields_of(ChatFields, options)  # a wrong one is reported before a download or a bake
    _require_model(context_, model, prompt, home)
    if as_json and prompt is None:
        raise typer.BadParameter("--json needs PROMPT: a conversation has several answers.")
    message = None if prompt is None else _read_prompt(prompt)
    _require_utf8(system or "", "system")
    bundle = find_or_bake(model, home, context_.obj, purpose="chat", meanwhile=_import_for_answers)
    from hearthd.server.terminal.chat import Chat

    opener = partial(_open, threads=threads, context=context, overflow=overflow)
    chat_ = Chat(bundle, opener, options, system=system, home=home)
    if message is None:
        _converse(chat_)
    else:
        _answer(chat_, message, as_json=as_json)


def _converse(chat_: "Chat") -> None:
    from hearthd.server.terminal.chat_loop import converse
    from hearthd.server.terminal.message_reader import MessageReader

    def note(text: str) -> None:
        if result := chat_.verification.result:
            print_line(result, to_stderr=True)
            chat_.verification.result = ""
        print_line(text, to_stderr=True)

    with chat_, keyboard_interrupts():
        converse(chat_, MessageReader(partial(print_line, to_stderr=True)), show=_show, note=note)


def _answer(chat_: "Chat", message: str, *, as_json: bool) -> None:
    pieces: list[str] = []
    with chat_:
        summary = chat_.answer(message, pieces.append if as_json else _show)
    _show_end(summary, pieces if as_json else None)
    _finish(chat_.verification)


def _show_end(summary: "AnswerSummary", pieces: "Sequence[str] | None") -> None:
    """Print what an answer took, with `pieces` as one JSON object that has also its text."""
    if pieces is not None:
        print(json.dumps({"text": "".join(pieces), **dataclasses.asdict(summary)}))  # noqa: T201
        return
    from hearthd.server.terminal.session import usage_line

    _show("\n")
    print_line(usage_line(summary), to_stderr=True)


run.command(cls=BakesFirst, help=_RUN_HELP)(_chat)


def _import_for_answers() -> None:
    for name in _FOR_ANSWERS:
        import_module(f"hearthd.server.{name}")


def _open(
    bundle: Path, threads: int | None, context: int | None, overflow: Overflow
) -> "LanguageService":
    from hearthd.server.services.engine_options import EngineOptions
    from hearthd.server.services.language_service import open_language_service

    options = EngineOptions(context=context, overflow=overflow)
    return open_language_service(bundle, threads=threads, options=options)


def _finish(verification: LaterVerification) -> None:
    verification.begin()
    if verification.is_alive():
        sys.stdout.flush()
        print_line(
            "the answer is complete; Hearth compares the new bundle with NumPy, once, which takes "
            "about as long as its bake; Ctrl-C is safe and leaves it to the next command",
            to_stderr=True,
        )
        verification.join()
    if verification.result:
        print_line(verification.result, to_stderr=True)


def _require_model(
    context_: typer.Context, model: str, prompt: str | None, home: Path | None
) -> None:
    """Reject a prompt in place of MODEL, before standard input is read."""
    if prompt is None and is_prompt(model, home):
        raise typer.BadParameter(
            f"MODEL is missing: got {model!r:.60}, which names no model; give the prompt after a "
            f"model, as in `{context_.command_path} smollm2 {shlex.quote(shorten(model, 60))}`."
        )


def _read_prompt(prompt: str | None) -> str:
    """The prompt: PROMPT, after what is piped to the command, or standard input alone.

    Of standard input the last line end is left out.
    """
    if prompt is not None and prompt != STDIN:
        _require_utf8(prompt, "prompt")
        piped = _read_stdin("; `< /dev/null` leaves it out") if stdin_is_piped() else ""
        return f"{piped}\n\n{prompt}" if piped else prompt
    if prompt is None and sys.stdin.isatty():
        raise typer.BadParameter("PROMPT is missing: give a text, or pipe it to standard input.")
    text = _read_stdin("; Ctrl-D in a terminal ends it")
    if not text:
        raise typer.BadParameter("PROMPT is missing: standard input is empty.")
    return text


def _read_stdin(hint: str) -> str:
    text = read_stdin(
        lambda: print_line(f"hearth: waits for the end of standard input{hint}", to_stderr=True)
    )
    _require_utf8(text, "prompt")
    return text


def _require_utf8(text: str, field: str) -> None:
    """Reject an argument with bytes that are not UTF-8, which Python reads as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(field=field, got=text, expected="text in UTF-8") from error


def _show(text: str) -> None:
    """Print a piece of an answer, to a file or a pipe as it is."""
    print(escape_controls(text) if sys.stdout.isatty() else text, end="", flush=True)  # noqa: T201
