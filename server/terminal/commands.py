"""`generate BUNDLE PROMPT` and `chat BUNDLE`: the command lines of the terminal.

The flags for sampling are the fields of an API request, by the same names and with the same ranges.
"""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from models.bundle import BundleError
from server import flags
from server.api.generation_fields import GenerationFields
from server.errors import ServerError
from server.services.language_service import open_service
from server.terminal.conversation import converse
from server.terminal.session import Session, figures

# Of the fields, those that make no sense here.
NOT_HERE = frozenset(
    {"stream", "cache_prompt", "timeout_ms", "post_sampling_probs", "response_format"}
)

Bundle = Annotated[Path, typer.Argument(help="The directory that `bake` wrote.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads; else one per physical core.")
]


def _typer() -> typer.Typer:
    return typer.Typer(
        add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
    )


generate_command = _typer()
chat_command = _typer()


@generate_command.command(name="generate")
@flags.takes(GenerationFields, leave_out=NOT_HERE)
def _generate(
    bundle: Bundle,
    prompt: Annotated[str, typer.Argument(help="The text to continue.")],
    *,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most tokens to generate.")] = 256,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object when the answer is complete.")
    ] = False,
    threads: Threads = None,
    **options: Any,
) -> None:
    """Continue a prompt, as the text comes; what it took goes to stderr.

    \b
        generate gemma3-270m "The capital of France is" --max-tokens 16 --temperature 0
    """
    with _failing("generate"):
        fields = _fields(options)
        pieces: list[str] = []
        with Session(open_service(bundle, threads=threads)) as session:
            request = fields.completion(prompt, max_tokens=max_tokens, logprobs=None)
            summary = session.answer(request, pieces.append if as_json else _show)
        if as_json:
            print(json.dumps({"text": "".join(pieces), **dataclasses.asdict(summary)}))  # noqa: T201
        else:
            _show("\n")
            print(figures(summary), file=sys.stderr)  # noqa: T201


@chat_command.command(name="chat")
@flags.takes(GenerationFields, leave_out=NOT_HERE)
def _chat(
    bundle: Bundle,
    *,
    system: Annotated[
        str | None, typer.Option(help="What the model is told before the conversation.")
    ] = None,
    threads: Threads = None,
    **options: Any,
) -> None:
    """Talk to a model that has a chat template.

    Ctrl-C ends the answer, /clear forgets the conversation, /exit or Ctrl-D leaves.

    \b
        chat smollm2-135m --system "Answer in one sentence."
    """
    with _failing("chat"):
        fields = _fields(options)
        with Session(open_service(bundle, threads=threads)) as session:
            converse(session, fields, system=system, show=_show, note=_note)


def _fields(options: dict[str, Any]) -> GenerationFields:
    # What was typed is text, so numbers are read from it; an API request must have them as such.
    return GenerationFields.model_validate(flags.given(GenerationFields, options), strict=False)


@contextlib.contextmanager
def _failing(name: str) -> Iterator[None]:
    """Say what went wrong in a line, and end with the code of its kind."""
    try:
        yield
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"][:1]))
        _note(f"{name}: {field}: {problem['msg']}, got {problem['input']!r}")
        raise typer.Exit(2) from error
    except (BundleError, ServerError) as error:
        _note(f"{name}: {error}")
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(130) from error


def _show(text: str) -> None:
    print(text, end="", flush=True)  # noqa: T201


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def _entry(command: typer.Typer, name: str) -> Callable[[], None]:
    def main() -> None:
        command(prog_name=name)

    return main


generate = _entry(generate_command, "generate")
chat = _entry(chat_command, "chat")
