"""`hearth generate` and `hearth chat`, also called `hearth run`.

Their flags for sampling are the fields of an API request, with the same names and ranges.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from hearthd import flags
from hearthd.bake_flags import BakesFirst
from hearthd.bundle import BundleError, bundle_home
from hearthd.bundle.parsing.validation import expected
from hearthd.find_or_bake import MODEL_HELP, find_or_bake
from hearthd.runtime.interrupts import keyboard_interrupts
from hearthd.server.api.generation_fields import GenerationFields
from hearthd.server.services.language_service import (
    EngineOptions,
    LanguageService,
    open_language_service,
)
from hearthd.server.terminal.bundle_commands import Home
from hearthd.server.terminal.chat_loop import converse
from hearthd.server.terminal.session import Session, usage_line
from hearthd.text.errors import InvalidRequest, RequestError
from hearthd.text.overflow import Overflow

# Fields of an API request that have no use in a terminal.
NOT_HERE = frozenset(
    {
        "model",
        "stream",
        "cache_prompt",
        "timeout_ms",
        "timings_per_token",
        "return_progress",
        "post_sampling_probs",
        "response_format",
        "lora",
    }
)

# Exceptions that end the commands, each with its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {flags.BadFlag: 2, BundleError: 1, RequestError: 1}

Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="CPU threads. Default: one per physical core."),
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

_RUN_HELP = """Chat with a model, which is baked first if it is missing.

    The same as `hearth chat`. What is baked is kept in --home and found again, also by `serve`,
    `generate` and `inspect`. With other options of the bake it is another bundle.

    \b
        hearth run model.gguf
        hearth run Qwen3-0.6B/ --precision int8-g32 --context 8192
        hearth run smollm2 --system "Answer in one sentence." --temperature 0
    """


def _typer() -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None)


generate = _typer()
chat = _typer()
run = _typer()


@generate.command(cls=BakesFirst)
@flags.takes(GenerationFields, leave_out=NOT_HERE)
def _generate(
    context_: typer.Context,
    model: Model,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="Text to continue.")],
    *,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum number of new tokens.")
    ] = 256,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object when the answer is complete.")
    ] = False,
    threads: Threads = None,
    overflow: OnOverflow = "error",
    home: Home = bundle_home.DEFAULT,
    **options: Any,
) -> None:
    """Continue a prompt, in this terminal.

    Prints the text as the model generates it to stdout, then token counts and speed to stderr.

    \b
        hearth generate gemma3-270m "The capital of France is" --max-tokens 16 --temperature 0
    """
    fields = _fields(options)
    _require_utf8(prompt, "prompt")
    pieces: list[str] = []
    bundle = find_or_bake(model, home, context_.obj)
    with Session(_open(bundle, threads, overflow)) as session:
        request = fields.completion(prompt, max_tokens=max_tokens, logprobs=None)
        summary = session.answer(request, pieces.append if as_json else _show)
    if as_json:
        print(json.dumps({"text": "".join(pieces), **dataclasses.asdict(summary)}))  # noqa: T201
    else:
        _show("\n")
        print(usage_line(summary), file=sys.stderr)  # noqa: T201


@chat.command(cls=BakesFirst)
@flags.takes(GenerationFields, leave_out=NOT_HERE)
def _chat(
    context_: typer.Context,
    model: Model,
    *,
    system: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="System message: instructions for the whole conversation."
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Maximum number of tokens of an answer. Default: as many as fit into the context.",
        ),
    ] = None,
    threads: Threads = None,
    overflow: OnOverflow = "error",
    home: Home = bundle_home.DEFAULT,
    **options: Any,
) -> None:
    """Chat with a model, in this terminal.

    The model must have a chat template. Ctrl-C stops an answer, /clear starts a new conversation,
    /exit or Ctrl-D exits.

    \b
        hearth chat smollm2-135m --system "Answer in one sentence."
    """
    fields = _fields(options)
    _require_utf8(system or "", "system")
    bundle = find_or_bake(model, home, context_.obj, chats=True)
    with Session(_open(bundle, threads, overflow)) as session, keyboard_interrupts():
        converse(session, fields, system=system, max_tokens=max_tokens, show=_show, note=_note)


run.command(cls=BakesFirst, help=_RUN_HELP)(_chat)


def _open(bundle: Path, threads: int | None, overflow: Overflow) -> LanguageService:
    return open_language_service(bundle, threads=threads, options=EngineOptions(overflow=overflow))


def _fields(options: dict[str, Any]) -> GenerationFields:
    """The sampling options; raises BadFlag."""
    try:
        # A flag's value is text. Only an API request must have numbers as JSON numbers.
        return GenerationFields.model_validate(
            flags.typed_values(GenerationFields, options), strict=False
        )
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"][:1]))
        raise flags.BadFlag(
            f"{field}: got {problem['input']!r}, expected {expected(problem)}"
        ) from error


def _require_utf8(text: str, field: str) -> None:
    """Reject an argument with bytes that are not UTF-8, which Python reads as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(field=field, got=text, expected="text in UTF-8") from error


def _show(text: str) -> None:
    print(text, end="", flush=True)  # noqa: T201


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
