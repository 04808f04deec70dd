"""`hearth install-service` writes a unit that systemd accepts, and replaces none unasked."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hearthd.bundle import NotABundle, bundle_home, write_manifest
from hearthd.server.environment import PREFIX
from hearthd.server.settings import Settings
from hearthd.server.systemd import cli, unit
from tests.fake_runtime import FakeRuntime
from tests.server import fakes

PYTHON = Path("/opt/hearth/bin/python3")
BUNDLE = Path("/srv/hearth/bundle")
# Characters to which a unit file or a command line gives a meaning.
SPECIAL = ("with space", "100%", "%h", "$HOME", "${HOME}", " ; ", "a,b", "ü", '"', "'", "\\n")
PROGRAM_FOLDER = "with space 100% %h $HOME ; a,b ü"  # without those that systemd rejects


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle without a program, in $HEARTH_HOME, on a machine with systemctl."""
    programs = tmp_path / "programs"
    programs.mkdir()
    systemctl = programs / "systemctl"
    systemctl.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(tmp_path / "home"))
    folder = tmp_path / "home/smol"
    folder.mkdir(parents=True)
    write_manifest(folder, fakes.manifest_of(FakeRuntime(vocab_size=300, context=64)))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config/systemd/user/hearth.service"


@pytest.fixture(params=["user", "system"])
def scope(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> unit.Scope:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return unit.SYSTEM if request.param == "system" else unit.user_scope()


def output(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def parsed(text: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def words(value: str) -> list[str]:
    """The words of a value after systemd has unquoted them and replaced its specifiers."""
    return [word.replace("%%", "%") for word in shlex.split(value)]


def test_the_unit_runs_hearth_serve(scope: unit.Scope) -> None:
    service = parsed(unit.unit_text(scope, BUNDLE, Path("/h"), PYTHON))["Service"]
    command = words(service["ExecStart"].removeprefix(":"))
    assert command == [str(PYTHON), "-P", "-m", "hearthd", "serve", str(BUNDLE)]
    name, _ = words(service["Environment"])[0].split("=", 1)
    assert name.removeprefix(PREFIX).lower() in Settings.model_fields
    settings = service["EnvironmentFile"].removeprefix("-")
    assert Path(settings.replace("%E", "~/.config")).expanduser() == scope.settings
    assert float(service["TimeoutStopSec"]) > Settings.model_fields["shutdown_timeout"].default


def test_only_the_service_of_the_machine_has_a_user_of_its_own() -> None:
    texts = {
        scope: unit.unit_text(scope, BUNDLE, Path("/h"), PYTHON)
        for scope in (unit.SYSTEM, unit.user_scope())
    }
    targets = [parsed(text)["Install"]["WantedBy"] for text in texts.values()]
    assert targets == ["multi-user.target", "default.target"]
    assert ["DynamicUser" in parsed(text)["Service"] for text in texts.values()] == [True, False]


@pytest.mark.parametrize("name", SPECIAL)
def test_every_character_of_a_path_is_kept(name: str) -> None:
    folder = Path("/srv") / name
    service = parsed(unit.unit_text(unit.user_scope(), folder, folder, PYTHON))["Service"]
    assert service["ExecStart"].startswith(":"), "without a colon, $HOME is a variable"
    assert words(service["ExecStart"])[-1] == str(folder)
    assert words(service["Environment"]) == [f"HEARTH_HOME={folder}"]


@pytest.mark.parametrize("name", ["two\nlines", "tab\t", "\udcff"])
def test_a_path_that_a_unit_cannot_have_is_reported(name: str) -> None:
    with pytest.raises(unit.CannotInstall, match=r"control characters or invalid UTF-8; rename"):
        unit.unit_text(unit.SYSTEM, BUNDLE / name, Path("/h"), PYTHON)


@pytest.mark.parametrize("name", ["\\", '"', "'"])
def test_a_program_that_systemd_does_not_start_is_reported(name: str) -> None:
    with pytest.raises(unit.CannotInstall, match=r"quote or a backslash in its path; install"):
        unit.unit_text(unit.SYSTEM, BUNDLE, Path("/h"), PYTHON / name)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_systemd_finds_the_program(
    scope: unit.Scope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / PROGRAM_FOLDER / "python3"
    program.parent.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def problems() -> str:
        file = tmp_path / unit.NAME
        file.write_text(unit.unit_text(scope, BUNDLE, tmp_path, program), encoding="utf-8")
        manager = "--system" if scope is unit.SYSTEM else "--user"
        done = subprocess.run(
            ["systemd-analyze", "verify", manager, "--man=no", file],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stderr if done.returncode or unit.NAME in done.stderr else ""

    assert f"Command {program} is not executable" in problems()
    program.symlink_to(sys.executable)
    assert problems() == ""


def test_a_unit_is_written_and_the_next_commands_are_printed(bundle: Path, path: Path) -> None:
    said = output("smol")
    text = path.read_text(encoding="utf-8")
    command = words(parsed(text)["Service"]["ExecStart"].removeprefix(":"))
    assert (command[0], command[-1]) == (sys.executable, str(bundle))
    assert said.startswith(f"wrote {path}\n")
    for step in (
        "systemctl --user daemon-reload",
        "systemctl --user enable --now hearth",
        "loginctl enable-linger",
        f"belong in {unit.user_scope().settings}.",
    ):
        assert step in said
    assert [*path.parent.iterdir()] == [path]
    assert path.stat().st_mode & 0o044, "systemd reads it"


def test_print_writes_no_file(
    bundle: Path, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = output("smol", "--print")
    assert not (tmp_path / "config").exists()
    output(str(bundle))
    assert path.read_text(encoding="utf-8") == printed
    monkeypatch.setenv("PATH", str(tmp_path))
    assert output("smol", "--print") == printed


def test_without_systemctl_no_file_is_written(
    bundle: Path, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(unit.CannotInstall, match=r"no systemctl .*; --print prints the unit"):
        output(str(bundle))
    assert not path.exists()


def test_a_unit_that_exists_is_replaced_only_with_force(bundle: Path, path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/null")  # as `systemctl mask` does
    with pytest.raises(unit.CannotInstall, match="exists already; --force replaces it"):
        output(str(bundle))
    assert path.is_symlink()
    output("smol", "--force")
    assert not path.is_symlink()
    assert str(bundle) in path.read_text(encoding="utf-8")


def test_a_failed_write_leaves_the_unit_that_was_there(
    bundle: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("[Unit]\n", encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        output(str(bundle), "--force")
    assert path.read_text(encoding="utf-8") == "[Unit]\n"
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.usefixtures("bundle")
def test_an_unknown_model_is_reported_and_nothing_is_written(path: Path) -> None:
    with pytest.raises(NotABundle, match=r"small: not a bundle: .* smol"):
        output("small")
    assert not path.parent.exists()


def test_weights_are_baked_after_the_destination_is_checked(
    bundle: Path, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "model.gguf"
    weights.write_bytes(b"GGUF")
    bakes = []

    def bake(model: str, home: Path, options: dict[str, str]) -> Path:
        bakes.append((model, home, options))
        return bundle

    monkeypatch.setattr(cli, "find_or_bake", bake)
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(unit.CannotInstall, match="exists already"):
        output(str(weights), "--slots", "2")
    assert bakes == []
    output(str(weights), "--slots", "2", "--force")
    assert bakes == [(str(weights), bundle.parent, {"slots": "2"})]
    assert str(bundle) in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("place", ["/home", "/root", "/tmp", "/var/tmp"])
def test_the_service_of_the_machine_sees_its_files(place: str) -> None:
    unit.check_visible(Path("/opt/hearth"), Path("/srv/hearth"), Path("/usr"))
    with pytest.raises(
        unit.CannotInstall, match=rf"cannot read files in {place}; .* omit --system"
    ):
        unit.check_visible(Path("/opt/hearth"), Path(place) / "smol")


def test_a_unit_of_the_machine_is_written(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = tmp_path / "units"
    monkeypatch.setattr(cli, "SYSTEM", unit.SYSTEM._replace(folder=units))
    monkeypatch.setattr(unit, "_HIDDEN", (bundle,))
    with pytest.raises(unit.CannotInstall, match="cannot read files in"):
        output("--system", "smol")
    monkeypatch.setattr(unit, "_HIDDEN", ())
    said = output("--system", "smol")
    assert "\n    systemctl enable --now hearth\n" in said
    assert "linger" not in said
    assert "DynamicUser=yes" in (units / unit.NAME).read_text(encoding="utf-8")


def test_a_folder_without_permission_is_reported(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/systemctl")
    with pytest.raises(unit.CannotInstall, match="not writable by this user; --system needs root"):
        output(str(bundle))
