"""The command `hearth`: what it lists, what it imports, and how it fails."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol

import pytest

from hearthd.baker.pipeline.recipe import recipes
from hearthd.cli import COMMANDS, bake, main
from tests.by_day import first_by_day

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What only the extra `bake` installs, by import name.
BAKER_PACKAGES = ("gguf", "httpx", "iree.compiler", "safetensors", "threadpoolctl", "ziglang")
# Commands that do not need a bundle, or need another extra: test_bundle_commands.py and
# test_signers.py run them.
WITHOUT_BUNDLE = ("list", "ps", "sign")
ON_A_DEVICE = tuple(
    name
    for name, command in COMMANDS.items()
    if not command.needs_baker and name not in WITHOUT_BUNDLE
)


class Exit(NamedTuple):
    """How a command ended."""

    code: object
    stdout: str
    stderr: str


class Run(Protocol):
    """Runs an entry point of hearthd/cli.py in this process."""

    def __call__(self, *arguments: str, entry: Callable[[], NoReturn] = main) -> Exit: ...


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str, entry: Callable[[], NoReturn] = main) -> Exit:
        monkeypatch.setattr(sys, "argv", ["hearth", *arguments])
        with pytest.raises(SystemExit) as exit_:
            entry()
        return Exit(exit_.value.code, *capsys.readouterr())

    return run


def run_process(*arguments: str, without: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run `hearth` where some modules are not installed; stdout ends with what it imported."""
    code = f"""
import atexit, sys
sys.argv = {["hearth", *arguments]!r}
atexit.register(lambda: print("imported:", *sys.modules))
sys.modules.update(dict.fromkeys({[*without]!r}))
from hearthd.cli import main
main()
"""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )


def imported(result: subprocess.CompletedProcess[str]) -> set[str]:
    return set(result.stdout.rpartition("imported: ")[2].split())


def test_an_error_cannot_control_the_terminal(run: Run) -> None:
    result = run("inspect", "\x1b]0;title\x07.gguf")
    assert result.code == 1
    assert r"\x1b]0;title\x07.gguf" in result.stderr
    assert "\x1b" not in result.stderr


def test_the_overview_lists_every_command_and_imports_none() -> None:
    result = run_process("--help")
    assert (result.returncode, result.stderr) == (0, "")
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.summary)}$", result.stdout, re.MULTILINE)
    assert "Example:" in result.stdout
    top_level = {name.partition(".")[0] for name in imported(result)}
    assert not top_level & {"numpy", "pydantic", "rich"}
    assert {name for name in imported(result) if name.startswith("hearthd.")} == {
        "hearthd.cli",
        "hearthd.other_commands",
        "hearthd.runtime",
        "hearthd.runtime.system",
        "hearthd.runtime.system.interrupts",
        "hearthd.runtime.system.operating_system",
    }


def test_without_arguments_the_overview_is_shown(run: Run) -> None:
    assert run() == run("--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_starts_with_its_summary_and_has_an_example(
    name: str, run: Run
) -> None:
    code, stdout, stderr = run(name, "--help")
    assert (code, stderr) == (0, "")
    usage, _, text = stdout.partition("\n")
    assert usage.startswith(f"Usage: hearth {name} ")
    assert text.split("\n\n")[0].strip() == COMMANDS[name].summary
    assert re.search(rf"^ +(hearth {name}|curl) \S", text, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_shows_no_types_of_python(name: str, run: Run) -> None:
    usage, *_ = stdout = run(name, "--help").stdout.splitlines()
    assert "{" not in usage
    assert not [line for line in stdout if re.match(r"  \S+ <\w+|.*\.\.\.\.", line)]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_names_each_argument_and_option_once(name: str, run: Run) -> None:
    usage, *lines = run(name, "--help").stdout.splitlines()
    assert "[[" not in usage
    assert not [line for line in lines if re.match(r" +/ --", line)]


@pytest.mark.parametrize("name", ["run", "chat", "generate"])
def test_options_of_the_sampler_are_a_section_of_their_own(name: str, run: Run) -> None:
    sections = run(name, "--help").stdout.partition("\nOptions:\n")[2].split("\n\n")
    assert "--help" in sections[0]
    assert "--temperature" not in sections[0]
    assert sections[1].startswith("Generation:\n  --temperature X ")


def test_the_names_of_models_are_words_of_their_own(run: Run) -> None:
    lines = [line.split() for line in run("bake", "--help").stdout.splitlines()]
    assert {line[0] for line in lines if "--precision" in line[1:]} > set(recipes())


@pytest.mark.parametrize("arguments", [("help", "ps"), ("ps", "-h"), ("help",), ("-h",)])
def test_help_has_other_spellings(arguments: tuple[str, ...], run: Run) -> None:
    assert run(*arguments) == run(*(name for name in arguments if name == "ps"), "--help")


def test_python_m_hearth_is_the_same_command() -> None:
    command = [sys.executable, "-m", "hearthd", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == f"hearth {PROJECT['version']}\n"


@pytest.mark.parametrize("arguments", [(), ("gemma3", "--help"), ("gru",)])
def test_bake_is_the_same_as_hearth_bake(arguments: tuple[str, ...], run: Run) -> None:
    assert PROJECT["scripts"] == {
        name: f"hearthd.__main__:{entry}" for name, entry in (("hearth", "main"), ("bake", "bake"))
    }
    short, long = (
        [str(part).replace("hearth bake", "bake").split() for part in result]
        for result in (run(*arguments, entry=bake), run("bake", *arguments))
    )
    assert short == long


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "NAME"),
        ("verify", "NAME"),
        ("reproduce", "NAME"),
        ("generate", "NAME", "x"),
        ("chat", "NAME"),
        ("batch", "{}", "--out", "{}.out", "--bundle", "NAME"),
        ("compare", "NAME", "NAME"),
        ("compare", "exact:NAME", "NAME"),
        ("compare", "numpy:NAME", "NAME"),
    ],
    ids=" ".join,
)
def test_a_bundle_is_found_by_its_name(
    arguments: tuple[str, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundle's manifest is read, which is invalid; an unknown name lists the similar ones."""
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path))
    for name in ("gemma3-270m", "smollm2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    requests = tmp_path / "requests"
    requests.write_text('{"custom_id": "a", "url": "/v1/completions", "body": {}}')

    def said(name: str) -> str:
        typed = [part.replace("NAME", name).format(requests) for part in arguments]
        code, _, stderr = run(*typed)
        assert code in (1, 2)
        assert stderr.count("\n") == 1
        return stderr

    assert "manifest.json: unsupported format" in said("smollm2")
    unknown = said("gemma-270m")
    assert "gemma3-270m" in unknown
    assert "smollm2" not in unknown


@pytest.mark.parametrize("command", [("rm",), ("sign", "--key", "private.pem")])
def test_an_unknown_name_lists_similar_ones(
    command: tuple[str, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path))
    (tmp_path / "gemma3-270m").mkdir()
    (tmp_path / "gemma3-270m" / "manifest.json").write_text("{}")
    code, _, stderr = run(*command, "gemma3")
    assert code == 1
    assert re.fullmatch(r"hearth \w+: gemma3: not a bundle: .*, or gemma3-270m\n", stderr)


def test_bake_without_arguments_lists_the_models(run: Run) -> None:
    assert re.search(r"^  gemma3 ", run("bake").stdout, re.MULTILINE)


@pytest.mark.parametrize("name", ON_A_DEVICE)
def test_a_command_of_the_device_needs_no_package_of_the_baker(name: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path), *(["x"] if name == "generate" else [])]
    if name == "batch":
        requests = tmp_path / "requests.jsonl"
        requests.write_text('{"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "x"}}')
        arguments = [str(requests), "--out", f"{requests}.out", "--bundle", str(tmp_path)]
    result = run_process(name, *arguments, without=BAKER_PACKAGES)
    assert result.returncode == 1
    assert re.fullmatch(rf"hearth {name}: {tmp_path}: not a bundle: .*\n", result.stderr)
    modules = imported(result)
    assert "hearthd.baker" not in modules or name == "inspect"
    assert "rich" not in modules or name in ("batch", "inspect")


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {*ON_A_DEVICE, *WITHOUT_BUNDLE}))
def test_a_command_of_the_baker_says_what_to_install(name: str) -> None:
    result = run_process(name, "x", "y", without=BAKER_PACKAGES)
    assert result.returncode == 1
    message = r"the package '\S+' is not installed: .* pip install 'hearthd\[bake(,hub)?\]'"
    assert re.fullmatch(rf"hearth {name}: {message}\n", result.stderr)


TAKES_WEIGHTS = ("run", "serve", "generate", "chat", "inspect")


@pytest.mark.parametrize("name", first_by_day(TAKES_WEIGHTS))
def test_weights_without_the_baker_say_what_to_install(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gguf.py").write_text("raise ModuleNotFoundError(name=__name__)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # for the process that bakes, too
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path))
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    message = r"the package 'gguf' is not installed: .* pip install 'hearthd\[bake\]'"
    for model in (str(tmp_path / "model.gguf"), "gemma3"):
        more = {"generate": ["x"], "serve": ["--port", "0"]}.get(name, [])
        result = run_process(name, model, *more)
        assert result.returncode == 1
        *_, last = result.stderr.splitlines()
        assert re.fullmatch(rf"hearth \w+: .*{message}", last)
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", first_by_day(sorted({*TAKES_WEIGHTS} - {"inspect"})))
def test_flags_of_a_bake_without_the_baker_say_what_to_install(name: str) -> None:
    more = ["x"] if name == "generate" else []
    result = run_process(name, "y", *more, "--rank", "64", without=BAKER_PACKAGES)
    assert result.returncode == 2
    message = r"No such option: --rank; .* pip install 'hearthd\[bake\]'\. See .*"
    assert re.fullmatch(rf"hearth {name}: {message}\n", result.stderr)
    result = run_process(name, "y", *more, "--max-model-len", "64", without=BAKER_PACKAGES)
    assert "--max-model-len; use --context. See" in result.stderr or name == "install-service"
    result = run_process(name, "--help", without=BAKER_PACKAGES)
    assert result.returncode == 0
    assert "--kv-cache" not in result.stdout


def test_a_missing_module_of_hearth_itself_is_not_hidden() -> None:
    result = run_process("bake", without=["hearthd.baker.progress"])
    assert "Traceback" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serv",), r"hearth: No such command 'serv'. Did you mean 'serve'\? See hearth --help."),
        (("show", "x"), "hearth: No such command 'show'. Use `hearth inspect`."),
        (("download", "x"), "hearth: No such command 'download'. Use `hearth pull`."),
        (("batch", "x", "--out", "y"), "hearth batch: give either --bundle or --url. See hearth b"),
        (
            ("run", "x", "Name", "a", "color"),
            "hearth run: .* .a color.; put quotes around a prompt of several words. See hearth r",
        ),
        (("list", "x"), r"hearth list: Got unexpected extra argument.* .x.\. See hearth list "),
        (
            ("bake", f"{__file__}x"),
            f"hearth bake: MODEL: got '{__file__}x', expected a .*; did you mean {__file__}[?]",
        ),
        (
            ("stop", "x"),
            "hearth: No such command 'stop'. Ctrl-C ends `hearth serve`, POST /models/u",
        ),
        (("push", "x"), "hearth: No such command 'push'. Hearth uploads nothing; copy the folder"),
        (("create", "x"), "hearth: No such command 'create'. Use `hearth bake Modelfile --out NAM"),
        (("-m", "x"), "hearth: No such command '-m'. Use `hearth run MODEL`."),
        (("hf:a/b",), "hearth: No such command 'hf:a/b'. Use `hearth run hf:a/b`."),
        ((__file__,), f"hearth: No such command '{__file__}'. Use `hearth run {__file__}`."),
        (("--prot",), "hearth: No such option: --prot.* See hearth --help."),
        (("serve", "--prot"), "hearth serve: No such option: --prot.* See hearth serve --help."),
        (
            ("chat", "b", "--out", "c"),
            "hearth chat: No such option: --out.* See hearth chat --help.",
        ),
        (("serve", "--slots"), "hearth serve: Option '--slots' requires an argument. See "),
        (
            ("bake", "gemma3", "--prot"),
            "hearth bake: No such option: --prot.* See hearth bake --help.",
        ),
        (
            ("bake", "a.gguf", "--outfile", "b"),
            "hearth bake: No such option: --outfile; use --out",
        ),
        (
            ("bake", "gemma3", "--max-memory", "x"),
            "hearth bake: --max-memory: got 'x', expected a ",
        ),
        (("bake", "gema3"), "hearth bake: MODEL: got 'gema3', expected a GGUF file, .* gemma3, "),
        (("bake", "unlike"), "hearth bake: MODEL: .*, or one of gemma3, smollm2$"),
        (
            ("generate", "x", "--max-tokens", "0"),
            "hearth generate: --max-tokens: got '0', expected greater than or equal to 1. See ",
        ),
        (
            ("generate", "x", "--top-k", "y"),
            "hearth generate: --top-k: got 'y', expected a valid integer",
        ),
        (
            ("run", "x", "--threads", "y"),
            "hearth run: --threads: got 'y', expected a valid integer. See hearth run --help.",
        ),
        (
            ("run", "x", "--overflow", "cut"),
            "hearth run: --overflow: got 'cut', expected one of 'error', 'truncate-middle'. See ",
        ),
        (("inspect",), "hearth inspect: Missing argument .*MODEL.* See hearth inspect --help."),
        (
            ("serve", "b", "--port", "x"),
            "hearth serve: port: got 'x', expected a valid integer .from --port.",
        ),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], message: str, run: Run
) -> None:
    code, _, stderr = run(*arguments)
    assert code == 2
    assert re.fullmatch(f"{message}.*\n", stderr)
