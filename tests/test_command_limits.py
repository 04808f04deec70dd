"""Every command ends with one line where disk, memory, a permission or a stream is missing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
import typer

from hearthd import cli

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
_HELPER = "tests.forked_commands"

NUMPY = ImportError("a page\nof advice")
NUMPY.__cause__ = ImportError("libblas.so: failed to map segment", path="/x/_umath.so")
FAILURES = {
    "memory": (MemoryError(), "not enough memory: see ulimit -v"),
    "array": (MemoryError("Unable to allocate 1 GiB"), "not enough memory: Unable to allocate"),
    "thread": (RuntimeError("can't start new thread"), "can't start new thread: not enough memory"),
    "library": (ImportError("lib.so: failed to map segment", path="/x/lib.so"), "lib.so: failed"),
    "numpy": (NUMPY, "a library cannot be loaded: libblas.so: failed to map segment"),
    "disk": (OSError(errno.ENOSPC, "No space left on device"), "cannot write: No space left"),
    "permission": (PermissionError(errno.EACCES, "Permission denied", "/root/x"), "/root/x: Perm"),
    "folder": (FileNotFoundError(errno.ENOENT, "No such file"), "the current folder was removed"),
}


class Failing:
    """A command that fails."""

    no_args_is_help = False

    def __init__(self, error: Exception) -> None:
        self.context_settings: dict[str, object] = {}
        self._error = error

    def main(self, *_: object, **__: object) -> NoReturn:
        raise self._error


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("name", [*cli.COMMANDS, "--version"])
def test_a_limit_of_the_machine_is_one_line(
    name: str,
    failure: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    error, says = FAILURES[failure]
    monkeypatch.setattr(sys, "argv", ["hearth", name])
    monkeypatch.setattr(typer.main, "get_command", lambda _: Failing(error))
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code in (1, 2)  # 2: `compare` could not compare
    stderr = capsys.readouterr().err
    program = "hearth" if name.startswith("-") else f"hearth {name}"
    assert stderr.startswith(f"{program}: {says}" if failure != "library" else f"{program}: ")
    assert says in stderr
    assert stderr.count("\n") == 1


@pytest.mark.parametrize("error", [RuntimeError("a fault"), ImportError("cannot import name 'x'")])
def test_a_fault_of_hearth_is_not_hidden(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["hearth", "list"])
    monkeypatch.setattr(typer.main, "get_command", lambda _: Failing(error))
    with pytest.raises(type(error), match=str(error)):
        cli.main()


def test_every_command_ends_quietly_without_its_streams(tmp_path: Path) -> None:
    """Each command as a process of its own: forked, because imports take seconds."""
    done = subprocess.run(
        [sys.executable, "-m", _HELPER, str(tmp_path)],
        capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 5 * (len(cli.COMMANDS) + 2)
    full = "hearth%s: cannot write: No space left on device\\n"
    expected: dict[str, Callable[[str], tuple[int, str]]] = {
        "full": lambda name: (
            2 if name == "compare" else 1,  # which could not compare
            full % ("" if name.startswith("-") else f" {name}"),
        ),
        "pipe": lambda _: (1, ""),
        "no stdout": lambda _: (0, ""),
        "no stdin": lambda _: (0, ""),
        "no folder": lambda _: (0, ""),
    }
    for line in lines:
        name, condition, code, stderr = line.split("\t")
        assert (int(code), stderr) == expected[condition](name), line


def test_the_bundles_of_an_unknown_user_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("HEARTH_HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 123456)  # Docker: --user, and nobody knows it
    for arguments in (("list",), ("inspect", "x"), ("rm", "x")):
        monkeypatch.setattr(sys, "argv", ["hearth", *arguments])
        with pytest.raises(SystemExit, match="1"):
            cli.main()
        assert capsys.readouterr().err == (
            f"hearth {arguments[0]}: ~/.local/share/hearth: the home folder of this user is not "
            "known; set HOME or HEARTH_HOME\n"
        )
