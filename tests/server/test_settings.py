"""Settings by flag, environment and file."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hearthd import flags
from hearthd.sampling.options import SamplingParameters
from hearthd.server.cli import app
from hearthd.server.environment import ignored_variables, variable_of
from hearthd.server.setting_files import adapter_folders, read_keys, require_files
from hearthd.server.settings import BadSettings, Settings, load
from hearthd.server.settings_as_toml import as_toml

# For every setting, a value that is not its default: as a flag, and what it is read as.
GIVEN: dict[str, tuple[str, Any]] = {
    "host": ("::1", "::1"),
    "port": ("99", 99),
    "api_prefix": ("/llm", "/llm"),
    "forwarded_allow_ips": ("10.0.0.5", ["10.0.0.5"]),
    "tls_cert": ("c.pem", "c.pem"),
    "tls_key": ("k.pem", "k.pem"),
    "max_body_bytes": ("1KiB", 1024),
    "client_timeout": ("2.5", 2.5),
    "shutdown_timeout": ("1.5", 1.5),
    "api_key_file": ("keys", "keys"),
    "cors_origins": ("https://a", ["https://a"]),
    "require_signature": ("public.pem", ["public.pem"]),
    "alias": ("gemma", "gemma"),
    "home": ("/srv/bundles", "/srv/bundles"),
    "threads": ("3", 3),
    "mmap": ("true", True),
    "queue_limit": ("0", 0),
    "pin": ("gemma", ["gemma"]),
    "models_max": ("2", 2),
    "models_autoload": ("true", True),
    "idle_timeout": ("60", 60.0),
    "speculation": ("off", "off"),
    "logits": ("exact", "exact"),
    "max_memory": ("400M", 400_000_000),
    "context": ("4096", 4096),
    "overflow": ("truncate-middle", "truncate-middle"),
    "cache_ram": ("1MiB", 2**20),
    "cache_dir": ("cache", "cache"),
    "cache_disk": ("5", 5),
    "state_dir": ("state", "state"),
    "state_size": ("4MiB", 4 * 2**20),
    "self_test": ("off", "off"),
    "log_level": ("debug", "debug"),
    "log_format": ("json", "json"),
    "strict_fields": ("true", True),
    "fetch_images": ("true", True),
    "webui": ("true", True),
    "slots": ("false", False),
    "share_cache": ("true", True),
    "tags": ("small", ["small"]),
    "chat_template": ("{{ messages }}", "{{ messages }}"),
    "chat_template_file": ("chat.jinja", "chat.jinja"),
    "lora": ("sql=a", ["sql=a"]),
    "lora_dir": ("adapters", "adapters"),
}
# The range of each one is tested with the fields of requests.
GIVEN |= {
    name: ("1", type(value)(1)) for name, value in vars(SamplingParameters()).items()
    if name != "samplers"
} | {"samplers": ("top_k", ["top_k"])}  # fmt: skip
GIVEN |= {"adaptive_decay": ("0.5", 0.5), "ignore_eos": ("true", True)}
SWITCHES = frozenset(
    {
        "strict_fields", "fetch_images", "webui", "slots", "share_cache", "mmap",
        "models_autoload", "ignore_eos", "post_sampling_probs",
    }
)  # fmt: skip
TOGETHER = {"tls_cert": {"tls_key": "k.pem"}, "tls_key": {"tls_cert": "c.pem"}}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable_of(name), raising=False)


def printed(*arguments: str) -> dict[str, Any]:
    """What `hearth serve --print-config` prints, read again."""
    result = CliRunner().invoke(app, [*arguments, "--print-config"])
    assert result.exit_code == 0, result.output
    return tomllib.loads(result.stdout)


def test_this_file_tests_every_setting() -> None:
    assert set(GIVEN) == set(Settings.model_fields) - {"bundle", "config", "api_key"}


@pytest.mark.parametrize("name", GIVEN)
def test_a_setting_is_read_from_flag_environment_and_file(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    typed, expected = GIVEN[name]
    others = [
        part
        for other, value in TOGETHER.get(name, {}).items()
        for part in (f"--{other.replace('_', '-')}", value)
    ]
    flag = f"--{name.replace('_', '-')}"
    if name == "api_key_file":
        monkeypatch.chdir(tmp_path)
        (tmp_path / "keys").write_text("a long key\n")
    typed_flag = [flag, *([] if name in SWITCHES else [typed])]
    if name == "slots":  # --slots is an option of the bake
        typed_flag = ["--no-slots"]
    assert printed("b", *typed_flag, *others)[name] == expected
    file = tmp_path / "serve.toml"
    value = json.dumps(expected)
    file.write_text(f'bundle = "b"\n{name} = {value}\n')
    assert printed("--config", str(file), *others)[name] == expected
    monkeypatch.setenv(variable_of(name), typed)
    assert printed("b", *others)[name] == expected


def test_variables_of_llama_server_are_named() -> None:
    assert ignored_variables(["HEARTH_PORT", "PATH"]) is None
    message = ignored_variables(["LLAMA_ARG_PORT", "HOME", "LLAMA_ARG_CTX_SIZE"])
    assert message
    assert message.startswith("LLAMA_ARG_CTX_SIZE, LLAMA_ARG_PORT: ignored")
    assert "HEARTH_PORT for --port" in message


def test_flags_override_the_environment_which_overrides_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('port = 1\nqueue_limit = 1\nthreads = 1\nbundle = "b"')
    monkeypatch.setenv("HEARTH_PORT", "2")
    monkeypatch.setenv("HEARTH_QUEUE_LIMIT", "2")
    monkeypatch.setenv("HEARTH_CONFIG", str(file))
    loaded = load({"port": "3"})
    settings = loaded.settings
    assert (settings.port, settings.queue_limit, settings.threads) == (3, 2, 1)
    assert settings.host == "127.0.0.1"
    lines = as_toml(loaded).splitlines()
    assert "port = 3  # flag" in lines
    assert "queue_limit = 2  # environment" in lines
    assert f"threads = 1  # {file}" in lines
    assert 'host = "127.0.0.1"  # default' in lines
    assert "# alias is not set  # default" in lines


def test_printed_settings_can_be_read_back_as_a_file(tmp_path: Path) -> None:
    values = {name: typed for name, (typed, _) in GIVEN.items() if name != "chat_template"}
    loaded = load({"bundle": 'odd "name" # \u00fc', **values})
    file = tmp_path / "again.toml"
    file.write_text(as_toml(loaded), encoding="utf-8")
    again = load({"config": file}).settings
    assert again.model_copy(update={"config": None}) == loaded.settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "prot: unknown setting in {file}"),
        ("config = 'x'", "config: unknown setting in {file}"),
        ("port = ", "config: {file} is not valid TOML: Invalid value"),
        (
            "port = 'many'",
            "port: got 'many', expected a valid integer \\(from {file}\\)$",
        ),
        ("port = 70000", "port: got 70000, expected less than or equal to 65535 "),
        ("cache_ram = 'many'", "cache_ram: got 'many', expected a number of bytes, "),
        ("cache_ram = true", "cache_ram: got True, expected a number of bytes, "),
        ("tls_cert = 'c.pem'", "tls_cert and tls_key must be set together"),
    ],
)
def test_an_invalid_file_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    with pytest.raises(BadSettings, match="^" + message.format(file=file)):
        load({"bundle": "b", "config": str(file)})


def test_the_address_of_a_model_keeps_its_slashes(monkeypatch: pytest.MonkeyPatch) -> None:
    link = "https://huggingface.co/org/repo"
    assert printed(link)["bundle"] == [link]
    monkeypatch.setenv("HEARTH_BUNDLE", link)
    assert printed()["bundle"] == [link]


def test_the_documented_file_is_accepted(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs/operate.md"
    match = re.search(r"<!-- config -->\n```toml\n(.*?)```", page.read_text(), re.DOTALL)
    assert match
    file = tmp_path / "serve.toml"
    file.write_text(match[1])
    loaded = load({"config": file})
    assert loaded.settings.max_body_bytes == 2**20
    assert set(loaded.origins) - {"config"} == set(tomllib.loads(match[1]))


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"none\.toml cannot be read: No such file"):
        load({"bundle": "b", "config": tmp_path / "none.toml"})


def test_the_source_of_a_bad_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSettings, match=r"got '-1', .* 0 \(from --queue-limit\)"):
        load({"bundle": "b", "queue_limit": "-1"})
    monkeypatch.setenv("HEARTH_QUEUE_LIMIT", "x")
    with pytest.raises(BadSettings, match=r"got 'x', .* \(from HEARTH_QUEUE_LIMIT\)"):
        load({"bundle": "b"})


def test_a_variable_that_is_no_setting_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEARTH_HISTORY", "file")
    monkeypatch.setenv("HEARTH_WEB_PORT", "tcp://10.0.0.1:8080")
    for suffix in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT_80_TCP_ADDR"):
        monkeypatch.setenv(f"HEARTH_{suffix}", "10.0.0.1")
    load({"bundle": "b"})
    monkeypatch.setenv("HEARTH_PROT", "80")
    with pytest.raises(BadSettings, match=r"^HEARTH_PROT: unknown .*; did you mean HEARTH_PORT\?$"):
        load({"bundle": "b"})
    monkeypatch.delenv("HEARTH_PROT")
    monkeypatch.setenv("hearth_xyzzy", "80")
    with pytest.raises(BadSettings, match=r"^hearth_xyzzy: unknown .*; unset it$"):
        load({"bundle": "b"})


KEYS = ("first-secret", "second-secret")


def test_keys_are_read_from_flag_environment_and_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert read_keys(load({"bundle": "b", "api_key": list(KEYS)}).settings) == KEYS
    file = tmp_path / "keys"
    file.write_text("\n  third-secret \n\n")
    flags = {"bundle": "b", "api_key_file": str(file)}
    monkeypatch.setenv("HEARTH_API_KEY", ", ".join(KEYS))
    assert read_keys(load(flags).settings) == (*KEYS, "third-secret")
    config = tmp_path / "serve.toml"
    config.write_text('api_key = ["from-the-file"]')
    monkeypatch.delenv("HEARTH_API_KEY")
    assert read_keys(load({"bundle": "b", "config": config}).settings) == ("from-the-file",)


def test_a_key_is_never_shown() -> None:
    loaded = load({"bundle": "b", "api_key": list(KEYS)})
    assert "# api_key: 2 hidden  # flag" in as_toml(loaded)
    assert "secret" not in as_toml(loaded) + repr(loaded)
    for wrong in (["short-1"], {"secret": 1}):
        with pytest.raises(BadSettings) as raised:
            load({"bundle": "b", "api_key": wrong})
        assert str(raised.value).startswith("api_key: ")
        assert "short-1" not in str(raised.value)
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize("text", [None, "", " \n\n", "short\na-long-key\n"])
def test_a_key_file_without_valid_keys_is_rejected(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "keys"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadSettings, match=f"^api_key_file: {file} ") as raised:
        read_keys(load({"bundle": "b", "api_key_file": file}).settings)
    assert "a-long-key" not in str(raised.value)


def test_left_out_fields_are_not_flags() -> None:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @flags.takes(Settings, leave_out=frozenset(Settings.model_fields) - {"port"})
    def show(**options: Any) -> None:
        typer.echo(repr(flags.typed_values(Settings, options)))

    assert CliRunner().invoke(app, ["--port", "7"]).output == "{'port': '7'}\n"
    assert CliRunner().invoke(app, []).output == "{}\n"
    assert CliRunner().invoke(app, ["--host", "x"]).exit_code == 2


def test_a_flag_that_only_turns_off_says_so_in_the_help() -> None:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @flags.takes(Settings, leave_out=frozenset(Settings.model_fields) - {"slots", "webui"})
    def show(**_: Any) -> None:
        """Has the flags."""

    shown = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert "--no-slots Do not report each slot at /slots. --" in shown


def test_an_adapter_has_the_name_of_its_folder_or_file_or_another() -> None:
    paths = ["adapters/sql", "other=json", "v1.5", "orders.gguf"]
    assert adapter_folders(load({"bundle": "b", "lora": paths}).settings) == {
        "sql": Path("adapters/sql"),
        "json": Path("other"),
        "v1.5": Path("v1.5"),
        "orders": Path("orders.gguf"),
    }


@pytest.mark.parametrize("lora", [["a/sql", "b/sql"], ["a=x", "b=x"], ["=x"]])
def test_adapters_of_one_name_or_without_a_folder_are_rejected(lora: list[str]) -> None:
    with pytest.raises(BadSettings, match="lora: the adapter"):
        adapter_folders(load({"bundle": "b", "lora": lora}).settings)


def test_a_path_can_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HEARTH_STATE_DIR", "~/state")
    (tmp_path / "hearth.toml").write_text('cache_dir = "~/cache"')
    settings = load({"config": "~/hearth.toml", "lora_dir": "~/adapters"}).settings
    folders = (settings.cache_dir, settings.state_dir, settings.lora_dir)
    assert folders == tuple(tmp_path / name for name in ("cache", "state", "adapters"))


@pytest.mark.parametrize("name", ["cache_dir", "state_dir"])
def test_a_folder_that_takes_no_files_is_reported_before_a_bake(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    require_files(Settings.model_validate({"bundle": ("m",), name: tmp_path / "new/folder"}))
    assert not list((tmp_path / "new/folder").iterdir())
    settings = Settings.model_validate({"bundle": ("m",), name: tmp_path / "file"})
    with pytest.raises(BadSettings, match=rf"{name}: .*/file: cannot be written: File exists"):
        require_files(settings)
