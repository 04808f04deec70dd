"""`hearth list`, `rm`, `ps` and `run`: bundles by name."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import typer
from typer.testing import CliRunner

from hearthd.baker.compare.sides.open_side import vocabulary_of
from hearthd.bundle import MANIFEST, Corrupt, NotABundle, bundle_home, write_manifest
from hearthd.server import cli
from hearthd.server.api.middleware.api_keys import ApiKeys
from hearthd.server.open_service import bundle_folders, open_service
from hearthd.server.process.listening import Tls
from hearthd.server.services import language_service
from hearthd.server.settings import BadSettings, load
from hearthd.server.terminal import bundle_commands, commands
from tests.fake_runtime import FakeRuntime
from tests.server import fakes
from tests.server.certificates import certificate
from tests.server.fake_models import FakeModel, complete, pool

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from hearthd.server.services.engine_options import EngineOptions


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two bundles without programs, named by $HEARTH_HOME."""
    folder = tmp_path / "home"
    for name in ("gemma", "smol"):
        (folder / name).mkdir(parents=True)
        write_manifest(folder / name, fakes.manifest_of(FakeRuntime(vocab_size=300, context=64)))
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def output(app: typer.Typer, *arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_list_shows_the_bundles_also_damaged_ones(home: Path) -> None:
    (home / "broken").mkdir()
    (home / "broken" / "manifest.json").write_text("{")
    (home / "other").mkdir()
    head, *rows = [line.split() for line in output(bundle_commands.list_).splitlines()]
    assert head == ["NAME", "MODEL", "PRECISION", "CONTEXT", "SLOTS", "SIZE"]
    assert [row[0] for row in rows] == ["broken", "gemma", "smol"]
    assert rows[0][1:4] == ["cannot", "be", "read:"]
    assert rows[1][1:5] == ["fake", "f32", "64", "1"]
    other = ("--home", str(home / "other"))
    assert output(bundle_commands.list_, *other).startswith("no bundles in ")
    assert output(bundle_commands.list_, *other, "--json") == "[]\n"
    broken, gemma, _ = json.loads(output(bundle_commands.list_, "--json"))
    assert (set(broken), broken["bytes"]) == ({"name", "folder", "bytes", "error"}, 1)
    assert (gemma["folder"], gemma["context"]) == (str(home / "gemma"), 64)


def test_columns_are_those_of_a_terminal(home: Path) -> None:
    """Chinese, Japanese and Korean characters take two."""
    (home / "smol").rename(home / "日本語")
    head, gemma, japanese = output(bundle_commands.list_).splitlines()
    column = head.index("MODEL")
    assert gemma.index("fake") == column
    assert japanese.index("fake") == column - len("日本語")


def test_rm_removes_a_bundle_and_nothing_else(home: Path) -> None:
    assert output(bundle_commands.remove, "gemma").startswith("removed gemma: 0.0 MB")
    assert [path.name for path in home.iterdir()] == ["smol"]
    (home / "smol" / "notes").mkdir()
    for name, error in (("smol", "contains 'notes'"), ("gemma", "not a bundle")):
        with pytest.raises(NotABundle, match=error):
            output(bundle_commands.remove, name)
    (home / "smol" / "notes").rmdir()
    (home / "link").symlink_to(home / "smol")
    output(bundle_commands.remove, "link")
    assert [path.name for path in home.iterdir()] == ["smol"]


def test_rm_removes_damaged_bundles_but_no_folder_of_another_program(home: Path) -> None:
    (home / "smol" / MANIFEST).write_text("{")
    with pytest.raises(NotABundle, match=r"smol: not a bundle: .*; nothing is removed"):
        output(bundle_commands.remove, "smol")
    (home / "smol" / "model.vmfb").touch()
    output(bundle_commands.remove, "smol")
    (home / "gemma" / MANIFEST).write_text('{"manifest_version": 3}')  # a browser extension
    with pytest.raises(NotABundle, match=r"gemma: not a bundle: .*; nothing is removed"):
        output(bundle_commands.remove, "gemma")
    assert [path.name for path in home.iterdir()] == ["gemma"]


def test_weights_of_the_same_name_do_not_hide_a_bundle(home: Path, tmp_path: Path) -> None:
    (tmp_path / "gemma").mkdir()
    (tmp_path / "gemma" / "config.json").touch()
    assert bundle_home.find_baked("gemma") == home / "gemma"
    assert vocabulary_of("gemma") is None, "hearth compare opens the bundle, without a tokenizer"
    output(bundle_commands.remove, "gemma")
    assert [path.name for path in home.iterdir()] == ["smol"]
    assert bundle_home.find_baked("gemma") == Path("gemma")
    with pytest.raises(
        NotABundle, match=r"^gemma: not a bundle: .*; nothing is removed; `hearth list`"
    ):
        output(bundle_commands.remove, "gemma")


def test_ps_shows_the_models_of_a_server() -> None:
    bad = FakeModel(name="bad", error=Corrupt("model.vmfb is missing"))
    with fakes.running(pool(FakeModel(name="good"), bad, pinned=["good"])) as client:
        complete(client, "good")
        assert client.post("/models/load", json={"model": "bad"}).status_code == 503
        head, good, failed, reason = output(
            bundle_commands.ps, "--url", str(client.base_url)
        ).splitlines()
        states = json.loads(output(bundle_commands.ps, "--url", str(client.base_url), "--json"))
        address = str(client.base_url).removeprefix("http://")
        for url in (address, f"{address}/v1", f"{client.base_url}/v1/"):
            assert "good" in output(bundle_commands.ps, "--url", url)
    assert [(each["name"], each["pinned"]) for each in states] == [("good", True), ("bad", False)]
    assert head.split() == ["NAME", "STATUS", "MEMORY", "REQUESTS", "IDLE"]
    assert good.split()[:5] == ["good", "loaded,", "pinned", "100.0", "MB"]
    assert failed.split() == ["bad", "failed", "-", "0", "-"]
    assert reason == "bad: the model cannot be loaded: model.vmfb is missing"


def test_ps_finds_the_server_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def proxy(app: ASGIApp) -> ASGIApp:
        """Requires a key also where the server does not."""
        return ApiKeys(app, ["secret-key"], open_paths=())

    with fakes.running(fakes.fake_service(fakes.gemma_like()), before=proxy) as client:
        monkeypatch.setenv("HEARTH_PORT", str(client.base_url.port))
        with pytest.raises(bundle_commands.NoServer, match="requires an API key; pass --api-key"):
            output(bundle_commands.ps)
        assert "fake-model" in output(bundle_commands.ps, "--api-key", "secret-key")
        monkeypatch.setenv("HEARTH_API_KEY", "secret-key")
        assert "fake-model" in output(bundle_commands.ps)
    for port in ("1", "many"):
        monkeypatch.setenv("HEARTH_PORT", port)
        with pytest.raises(bundle_commands.NoServer, match=r"`hearth serve`, or give .* --url"):
            output(bundle_commands.ps)


def test_ps_trusts_the_certificates_of_a_file(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    service = fakes.fake_service(fakes.gemma_like())
    with fakes.running(service, tls=Tls(certificate=cert, key=key)) as client:
        url = ("--url", str(client.base_url))
        assert "fake-model" in output(bundle_commands.ps, *url, "--ca", str(cert))
        with pytest.raises(bundle_commands.NoServer, match="--ca names the certificates"):
            output(bundle_commands.ps, *url)


Call = tuple[str, Path | None, dict[str, str], str]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls of find_or_bake, which end the commands."""
    calls: list[Call] = []

    def find_or_bake(
        model: str, home: Path | None, bake: dict[str, str], *, purpose: str = "any", **_: object
    ) -> NoReturn:
        calls.append((model, home, bake, purpose))
        raise typer.Exit

    for module in (commands, cli):
        monkeypatch.setattr(module, "find_or_bake", find_or_bake)
    monkeypatch.setattr(cli, "bound_sockets", lambda *_: contextlib.nullcontext(()))
    return calls


def test_run_generate_and_chat_find_or_bake_a_model(home: Path, calls: list[Call]) -> None:
    flags = ["--precision", "f32", "--temperature", "0", "--slots=2", "--target", "aarch64"]
    bake = {"precision": "f32", "slots": "2", "target": "aarch64"}
    for app, purpose in (
        (commands.run, "chat"),
        (commands.chat, "chat"),
        (commands.generate, "text"),
    ):
        prompt = [] if purpose == "chat" else ["Hello"]
        output(app, "model.gguf", *prompt, *flags)
        output(app, *flags[:2], "model.gguf", *prompt, "--home", "elsewhere")
        assert calls[-2:] == [
            ("model.gguf", home, bake, purpose),
            ("model.gguf", Path("elsewhere"), {"precision": "f32"}, purpose),
        ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--temperature", "warm"), "temperature: got 'warm'"),
        (("--json",), "--json needs PROMPT"),
    ],
)
def test_a_wrong_flag_of_a_chat_is_reported_before_a_download(
    arguments: tuple[str, ...], message: str, home: Path, calls: list[Call]
) -> None:
    assert home.exists()
    result = CliRunner().invoke(commands.run, ["hf:a/b", *arguments])
    assert message in f"{result.output}{result.exception}"
    assert not calls


def test_a_terminal_opens_a_bundle_with_the_context_of_its_flag(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[Path, int | None]] = []

    def open_(bundle: Path, *, threads: None, options: EngineOptions) -> NoReturn:
        assert (threads, options.overflow) == (None, "error")
        opened.append((bundle, options.context))
        raise typer.Exit

    monkeypatch.setattr(language_service, "open_language_service", open_)
    output(commands.generate, "gemma", "Hello", "--context", "64")
    output(commands.generate, "gemma", "Hello")
    assert opened == [(home / "gemma", 64), (home / "gemma", None)]
    assert CliRunner().invoke(commands.generate, ["gemma", "x", "--context", "63"]).exit_code == 2


def test_serve_finds_or_bakes_models(home: Path, calls: list[Call]) -> None:
    output(cli.app, "model.gguf", "--port=0", "--slots", "2", "--no-slots", "--max-memory", "1G")
    assert calls == [("model.gguf", home, {"slots": "2"}, "any")]
    output(cli.app, str(home), "model.gguf", "--port=0")
    assert calls[-1] == ("model.gguf", home, {}, "any")
    output(cli.app, str(home), "--port=0", "--rank", "64")  # refused, as for a bundle
    assert calls[-1] == (str(home), home, {"rank": "64"}, "any")
    assert len(calls) == 3
    refused = CliRunner().invoke(cli.app, ["--port=0", "--rank", "64"])
    assert refused.exit_code == 2
    assert "--rank needs MODEL" in refused.output


@pytest.mark.parametrize(
    "models", [["missing"], ["gemma", "missing"], ["missing", "gemma"], ["first.gguf", "missing"]]
)
def test_a_model_that_does_not_exist_ends_serve_before_the_first_is_baked(
    home: Path, models: list[str]
) -> None:
    Path("first.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(NotABundle, match=r"^missing: not a bundle"):
        cli.with_bundles(load({"bundle": models, "home": home}), {})


def test_what_is_missing_here_ends_serve_before_a_download(
    home: Path, monkeypatch: pytest.MonkeyPatch, calls: list[Call]
) -> None:
    searched: list[str] = []
    monkeypatch.setattr(cli, "find", lambda model, *_: searched.append(model))
    output(cli.app, "hf:a/b", "model.gguf", "--port=0")
    assert searched == ["model.gguf", "hf:a/b"]
    result = CliRunner().invoke(cli.app, ["hf:a/b", "--port=0", "--lora", "adaptr"])
    assert str(result.exception) == "lora: adaptr does not exist"
    assert len(calls) == 1
    assert home.exists()


def test_serve_finds_bundles_by_name(home: Path, tmp_path: Path) -> None:
    def folders(**flags: Any) -> list[Path]:
        return list(bundle_folders(load(flags).settings))

    assert folders() == [home / "gemma", home / "smol"]
    assert folders(bundle=["smol"]) == [home / "smol"]
    assert folders(bundle=[str(home)]) == [home / "gemma", home / "smol"]
    (tmp_path / "smol").mkdir()  # a path in the current folder comes first
    assert [path.resolve() for path in folders(bundle=["smol"])] == [tmp_path / "smol"]
    with pytest.raises(BadSettings, match="MODEL is missing"):
        folders(home=str(tmp_path / "empty"))
    with pytest.raises(NotABundle, match=r"no bundle of this name in .*, or gemma$"):
        open_service(load({}), tmp_path / "gemm", "gemm")
