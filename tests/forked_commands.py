"""Run every command with `--help` without its streams: python -m tests.forked_commands FOLDER.

Imports the modules of all commands once and forks for each run. Prints a line for each: the
command, what is missing, the exit code, and stderr.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

from hearthd.cli import COMMANDS, main


def run(arguments: list[str], condition: str, log: Path) -> None:
    """The command in a forked process; its streams are as `condition` says."""
    folder = log.parent / "gone"
    folder.mkdir()
    os.chdir(folder)
    with log.open("w", encoding="utf-8") as stderr:
        os.dup2(stderr.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    if condition == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    elif condition == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
    elif condition == "no folder":
        folder.rmdir()
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, 1, closefd=False)  # noqa: SIM115
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    if condition.startswith("no std"):
        name = condition.removeprefix("no ")
        os.close(("stdin", "stdout").index(name))
        setattr(sys, name, None)
    sys.argv = ["hearth", *arguments]
    main()


def code_of(arguments: list[str], condition: str, log: Path) -> int:
    """The exit code of a run, also of what Python does at its end."""
    child = os.fork()
    if not child:
        code = 99
        try:
            run(arguments, condition, log)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
            sys.stdout.flush()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    (log.parent / "gone").rmdir() if condition != "no folder" else None
    return code


if __name__ == "__main__":
    for command in COMMANDS.values():
        import_module(command.module)
    for name in (*COMMANDS, "--help", "--version"):
        arguments = [name] if name.startswith("-") else [name, "--help"]
        for condition in ("full", "pipe", "no stdout", "no stdin", "no folder"):
            log = Path(sys.argv[1]) / "log"
            code = code_of(arguments, condition, log)
            print(name, condition, code, repr(log.read_text())[1:-1], sep="\t", flush=True)  # noqa: T201
