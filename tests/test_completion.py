"""Shells complete the commands of `hearth`, their options and the names of bundles."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from hearthd import cli
from hearthd.bundle import bundle_home
from hearthd.cli import COMMANDS, main

if TYPE_CHECKING:
    from collections.abc import Callable

    Completed: TypeAlias = Callable[..., list[str]]


@pytest.fixture
def completed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Completed:
    (tmp_path / "gemma3").mkdir()
    (tmp_path / "gemma3" / "manifest.json").write_text("{}")
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(tmp_path))
    monkeypatch.setenv("_HEARTH_COMPLETE", "complete_bash")
    monkeypatch.setattr(sys, "argv", ["hearth"])

    def completed(*words: str) -> list[str]:
        """What a shell offers in place of the last word."""
        monkeypatch.setenv("COMP_WORDS", " ".join(["hearth", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out.split()

    return completed


def test_commands_are_completed_without_their_modules(
    completed: Completed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "import_module", None)
    assert completed("") == list(COMMANDS)
    assert completed("insp") == ["inspect"]


def test_options_are_completed(completed: Completed) -> None:
    assert completed("chat", "--temp") == ["--temperature"]
    assert completed("serve", "--tls-") == ["--tls-cert", "--tls-key"]


# Every command that takes a bundle.
@pytest.mark.parametrize(
    "words",
    [
        *(
            (name,)
            for name in COMMANDS
            if name not in ("bake", "batch", "list", "ps", "pull", "tune")
        ),
        ("compare", "gemma3"),
        ("batch", "requests", "--bundle"),
    ],
    ids=" ".join,
)
def test_names_of_bundles_are_completed(words: tuple[str, ...], completed: Completed) -> None:
    assert completed(*words, "gem") == ["gemma3"]
    assert completed(*words, "x") == []


def test_a_command_without_its_packages_offers_nothing(
    completed: Completed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, COMMANDS["bake"].module, None)
    assert completed("bake", "--prec") == []


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with `hearth` and an empty home."""
    folders = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"HOME": str(tmp_path), "PATH": folders}


def test_bash_completes_after_the_installation(home: dict[str, str]) -> None:
    installed = subprocess.run(
        ["bash", "-c", "hearth --install-completion; true"],
        capture_output=True,
        text=True,
        env=home,
        check=True,
    )
    assert (installed.stdout.splitlines()[0], installed.stderr) == (
        f"bash completion installed in {home['HOME']}/.bash_completions/hearth.sh",
        "",
    )
    lines = "source ~/.bashrc; COMP_WORDS=(hearth gen); COMP_CWORD=1; _hearth_completion hearth"
    done = subprocess.run(
        ["bash", "-c", f'{lines}; echo "${{COMPREPLY[@]}}"'],
        capture_output=True,
        text=True,
        env=home,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("generate\n", "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is missing")
def test_fish_completes(home: dict[str, str]) -> None:
    script = "env _HEARTH_COMPLETE=source_fish hearth | source; complete -C 'hearth gen'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], capture_output=True, text=True, env=home, check=True
    )
    assert done.stdout.split("\t")[0] == "generate"
