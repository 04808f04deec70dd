"""`hearth COMMAND`: find the command's module, run it, and turn its errors into one line.

A command is a Typer application in a module of the baker or of the server. Its module is imported
when the command runs, so that `hearth serve` starts without the baker, and `hearth --help` without
either. The module also exports ERRORS: the exit code of each exception that ends the command.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from hearthd import other_commands
from hearthd.runtime.system.interrupts import STATUS as INTERRUPTED
from hearthd.runtime.system.interrupts import end_on_signals, outlive_hangups

# Typer is imported when a command runs: that takes a while, which Ctrl-C ends as any other.
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import typer
    from typer.core import TyperGroup

PROGRAM = "hearth"
# The extras of packages that `bake` does not install.
_EXTRAS = dict.fromkeys(("filelock", "httpx2", "huggingface_hub"), "bake,hub")
HELP_OPTIONS = ("-h", "--help")
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Command(NamedTuple):
    """One command: the module and the name of its Typer application, and one line of help."""

    module: str
    app: str
    summary: str
    needs_baker: bool = False
    reloads_on_hangup: bool = False


COMMANDS = {
    "bake": Command(
        "hearthd.baker.cli",
        "app",
        "Compile a model and its weights into a bundle.",
        needs_baker=True,
    ),
    "pull": Command(
        "hearthd.pull",
        "app",
        "Download a model from the Hugging Face Hub.",
        needs_baker=True,
    ),
    "tune": Command(
        "hearthd.baker.tuning.cli",
        "app",
        "Tune a LoRA adapter or a drafter of a model on examples.",
        needs_baker=True,
    ),
    "serve": Command(
        "hearthd.server.cli", "app", "Serve bundles over HTTP.", reloads_on_hangup=True
    ),
    "install-service": Command(
        "hearthd.server.systemd.cli", "app", "Write a systemd unit that serves a model."
    ),
    "generate": Command(
        "hearthd.server.terminal.commands", "generate", "Continue a prompt, in this terminal."
    ),
    "chat": Command(
        "hearthd.server.terminal.commands", "chat", "Chat with a model, in this terminal."
    ),
    "run": Command(
        "hearthd.server.terminal.commands",
        "run",
        "Chat with a model, which is baked first if it is missing.",
    ),
    "list": Command(
        "hearthd.server.terminal.bundle_commands", "list_", "List the bundles on this machine."
    ),
    "rm": Command(
        "hearthd.server.terminal.bundle_commands", "remove", "Remove bundles from this machine."
    ),
    "ps": Command(
        "hearthd.server.terminal.bundle_commands",
        "ps",
        "List the models of a running server, and their states.",
    ),
    "batch": Command(
        "hearthd.server.batch.cli",
        "app",
        "Answer a file of requests in the format of OpenAI's API.",
    ),
    "compare": Command(
        "hearthd.baker.compare.cli",
        "app",
        "Compare the predictions of two models and write a report.",
        needs_baker=True,
    ),
    "inspect": Command(
        "hearthd.baker.checks.inspect_cli",
        "app",
        "Print what a bundle contains, or what weights are.",
    ),
    "sign": Command("hearthd.baker.signing.cli", "app", "Sign a bundle or a LoRA adapter."),
    "verify": Command(
        "hearthd.baker.checks.cli",
        "verify",
        "Check that a bundle is intact and correct on this CPU.",
        needs_baker=True,
    ),
    "reproduce": Command(
        "hearthd.baker.checks.cli",
        "reproduce_",
        "Bake a bundle again and compare every byte.",
        needs_baker=True,
    ),
}

_EPILOG = """Example:

\b
    hearth run model.gguf
    hearth bake gemma3 --out gemma3-270m
    hearth serve gemma3-270m
    hearth generate gemma3-270m "The capital of France is"

`hearth COMMAND --help` describes the options of a command, with examples.
"""


def main() -> NoReturn:
    """The entry point `hearth`."""
    arguments = sys.argv[1:] or ["--help"]
    if arguments[0] == "help":
        arguments = [*arguments[1:2], "--help"]
    if arguments[0] in COMMANDS:
        _run(arguments[0], arguments[1:], f"{PROGRAM} {arguments[0]}")
    end_on_signals(PROGRAM)
    if advice := other_commands.instead_of(arguments[0]):
        _fail(PROGRAM, f"No such command '{arguments[0]}'. {advice}", 2)
    with _limits_of_the_machine(PROGRAM):
        _exit_with(_overview(), arguments, PROGRAM, {})


def bake() -> NoReturn:
    """The entry point `bake`: the same as `hearth bake`."""
    _run("bake", sys.argv[1:], "bake")


def _run(name: str, arguments: Sequence[str], program: str) -> NoReturn:
    """Run a command and exit. `program` is what the user typed to get here."""
    end_on_signals(program)
    command = COMMANDS[name]
    if command.reloads_on_hangup:
        outlive_hangups()
    try:
        with _limits_of_the_machine(program):
            module = import_module(command.module)
            _exit_with(getattr(module, command.app), arguments, program, module.ERRORS)
    except ModuleNotFoundError as error:
        if not command.needs_baker:
            raise
        _fail(program, missing_baker(error), 1)


def missing_baker(error: ModuleNotFoundError) -> str:
    """The message for a missing package of the baker; raises the error for a module of Hearth."""
    missing = error.name or ""
    extras = _EXTRAS.get(missing.partition(".")[0], "bake")
    if missing.partition(".")[0] == __package__:
        raise error
    return (
        f"the package {missing!r} is not installed: install Hearth with the baker, as in "
        f"pip install 'hearthd[{extras}]'"
    )


def _exit_with(
    app: typer.Typer, arguments: Sequence[str], program: str, errors: dict[type[Exception], int]
) -> NoReturn:
    """Run an application, and exit with its code, or with one line on stderr if it fails."""
    import typer

    usage_error: Any = typer.BadParameter.__base__  # which has no public name
    _replace_invalid_characters()
    command = typer.main.get_command(app)
    command.context_settings["help_option_names"] = [*HELP_OPTIONS]
    if command.no_args_is_help:
        arguments = arguments or ["--help"]
    try:
        code = command.main(list(arguments), prog_name=program, standalone_mode=False)
    except usage_error as error:
        where = error.ctx.command_path if error.ctx else program
        message = _wrong_value(error) or error.format_message().rstrip(".")
        message = message.removeprefix("Invalid value: ")  # of no argument
        if hints := _habits(error, arguments):
            message = ". ".join(hints)
        if "unexpected extra argument" in message and _takes_prompt(error.ctx):
            message += "; put quotes around a prompt of several words"
        message += "" if message.endswith("?") else "."
        _fail(program, f"{message} See {where} --help.", 2)
    except tuple(errors) as error:
        code = next(code for type_, code in errors.items() if isinstance(error, type_))
        _fail(program, _reason(error), code)
    if code == INTERRUPTED:  # Typer's status for a KeyboardInterrupt
        _fail(program, "interrupted", code)
    sys.stdout.flush()
    sys.exit(code or 0)


def _wrong_value(error: Any) -> str | None:
    """What is wrong with the value of an option, if Typer had pydantic check it."""
    from pydantic import ValidationError

    from hearthd.bundle.parsing.validation import expected

    if not isinstance(error.__cause__, ValidationError):
        return None
    problem = error.__cause__.errors(include_url=False)[0]
    choices = expected(problem).rpartition(" is not one of ")[2].rstrip(".")
    phrase = f"one of {choices}" if "one of" in problem["msg"] else choices
    return f"{error.param.opts[0]}: got {problem['input']!r:.80}, expected {phrase}"


def _takes_prompt(context: Any) -> bool:
    return context is not None and any(each.name == "prompt" for each in context.command.params)


def _habits(error: Any, arguments: Sequence[str]) -> list[str]:
    """Sentences for the flags of other programs that a user typed: what to do in their place."""
    from hearthd.other_flags import instead_of

    unknown = getattr(error, "option_name", None)
    if unknown is None or error.ctx is None:
        return []
    options = {name for each in error.ctx.command.params for name in each.opts}
    known = options | {each.metavar for each in error.ctx.command.params}
    flags = [word.partition("=")[0] for word in arguments if word.startswith("-")]
    hints = {flag: instead_of(flag, known) for flag in flags if flag not in options}
    found = [f"No such option: {flag}; {hint}" for flag, hint in hints.items() if hint]
    # Typer reports the first unknown letter: of -ngl it is -n.
    is_covered = any(unknown.lstrip("-") in flag for flag, hint in hints.items() if hint)
    return found if is_covered or not found else [f"No such option: {unknown}", *found]


@contextlib.contextmanager
def _limits_of_the_machine(program: str) -> Iterator[None]:
    """Exit with one line if memory, disk, a permission or the reader of a pipe is missing."""
    _open_closed_streams()
    try:
        yield
    except BrokenPipeError:  # the reader, such as `head`, has enough
        _discard_output()
        sys.exit(1)  # as Typer does
    except OSError as error:
        _discard_output()
        _fail(program, _reason(error), 1)
    except MemoryError as error:
        _fail(program, f"not enough memory: {str(error) or 'see ulimit -v'}", 1)
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
        _fail(program, f"{error}: not enough memory or processes; see ulimit -v and -u", 1)
    except ImportError as error:
        cause = error.__cause__ or error  # NumPy adds a page of advice
        if not (getattr(cause, "path", None) or "").endswith(".so"):
            raise
        _fail(program, f"a library cannot be loaded: {cause}", 1)


def _reason(error: Exception) -> str:
    """The message of an error; of one of the operating system, without its number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if error.errno == errno.ENOENT:  # os.getcwd()
        return "the current folder was removed; change to another one"
    return f"cannot write: {error.strerror}" if error.errno in _CANNOT_WRITE else error.strerror


def _open_closed_streams() -> None:
    """Connect closed standard streams to /dev/null, so that no other file gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _discard_output() -> None:
    """Discard what stdout could not write; Python would fail again when it exits."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())


def _replace_invalid_characters() -> None:
    """Read bytes that are not text, and print what the terminal cannot show, as a replacement."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(program: str, message: str, code: int) -> NoReturn:
    from hearthd.text.control_characters import print_line

    with contextlib.suppress(OSError):
        print_line(f"{program}: {message}", to_stderr=True)
    sys.exit(code)


def _overview() -> typer.Typer:
    """The help of `hearth`: every command with its summary, none of them imported."""
    import typer

    app = typer.Typer(
        cls=_group(),
        rich_markup_mode=None,
        help="Bake a language model once, ahead of time, and serve it on the device.",
        epilog=_EPILOG,
    )

    @app.callback()
    def options(
        *,
        version: bool = typer.Option(
            False, "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ) -> None:
        """The options of `hearth` itself."""

    for name, command in COMMANDS.items():
        app.command(name, help=command.summary)(lambda: None)
    return app


def _group() -> type[TyperGroup]:
    """A group whose commands are imported when a shell completes their options."""
    import typer
    from typer.core import TyperGroup
    from typing_extensions import override

    class Group(TyperGroup):
        @override
        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """Called by Typer."""
            if args[0] in COMMANDS:
                command = COMMANDS[args[0]]
                with contextlib.suppress(ModuleNotFoundError):  # of the baker
                    application = getattr(import_module(command.module), command.app)
                    return args[0], typer.main.get_command(application), args[1:]
            return super().resolve_command(ctx, args)

    return Group


def _print_version(value: bool) -> None:
    from importlib import metadata

    import typer

    if value:
        typer.echo(f"{PROGRAM} {metadata.version(__package__)}")
        raise typer.Exit
