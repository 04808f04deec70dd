"""`hearth generate` and `hearth chat` as processes on a fake model, the latter on a pty."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from hearthd import flags
from hearthd.server.api.generation_fields import GenerationFields
from hearthd.server.terminal import commands, standard_input
from hearthd.server.terminal.chat import Chat
from hearthd.server.terminal.chat_loop import converse
from hearthd.server.terminal.message_reader import MessageReader
from hearthd.server.terminal.typed_fields import NOT_HERE
from tests.by_day import first_by_day
from tests.patience import PATIENCE
from tests.server import fakes
from tests.server.generate_client import LIBRARY, answer
from tests.server.templates import GEMMA
from tests.server.terminal.pseudo_terminal import COMMAND, ENVIRONMENT, Terminal, prompt_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator


def run(
    *arguments: str | bytes, typed: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=typed,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=PATIENCE,
        env={**ENVIRONMENT, **variables},
        check=False,
    )


def test_generate_gives_the_same_answer_as_the_server() -> None:
    with fakes.running(fakes.fake_service(LIBRARY)) as client:
        expected = answer(client, max_tokens=7, seed=3, top_k=5)
    shown = run("generate", ".", "the dog", "--max-tokens", "7", "--seed", "3", "--top-k", "5")
    assert shown.stdout == expected["text"] + "\n"
    assert re.search(r"^\d+ prompt tokens in .* s, 7 tokens in .*, length, seed 3$", shown.stderr)
    whole = run("generate", ".", "the dog", "--max-tokens=7", "--seed=3", "--top-k=5", "--json")
    data = json.loads(whole.stdout)
    assert data["text"] == expected["text"]
    assert data["prompt_tokens"] == expected["usage"]["prompt_tokens"]
    assert whole.stderr == ""
    # What a flag says arrives: the answer ends before the string.
    stop = expected["text"][3:5]
    ended = run(
        "generate", ".", "the dog", "--seed=3", "--top-k=5", "--stop=never", f"--stop={stop}"
    )
    assert ended.stdout == expected["text"][: expected["text"].find(stop)] + "\n"


@pytest.mark.nightly
def test_generate_reads_standard_input_before_a_prompt_or_alone() -> None:
    options = ("--max-tokens=4", "--seed=3", "--json")

    def counted(*arguments: str, typed: str) -> tuple[int, str]:
        data = json.loads(run("generate", ".", *arguments, *options, typed=typed).stdout)
        return data["prompt_tokens"], data["text"]

    expected = counted("the dog\nthe fox", typed="")
    assert counted("the fox", typed="the dog\n") == counted("the dog\n\nthe fox", typed="")
    assert counted(typed="the dog\nthe fox\n") == expected
    assert counted("-", typed="the dog\nthe fox\r\n") == expected


def test_generate_needs_a_prompt_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", mock.Mock(isatty=lambda: True))
    with pytest.raises(typer.BadParameter, match="PROMPT is missing: give a text, or pipe it"):
        commands._read_prompt(None)


@pytest.mark.parametrize(
    ("opened", "prompt"),
    [("pipe", "some notes\n\nSummarize"), ("file", "some notes\n\nSummarize"),
     ("loop", "Summarize"), ("socket", "Summarize"), ("empty", "Summarize")],
)  # fmt: skip
def test_what_is_piped_is_put_before_a_prompt(
    opened: str, prompt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notes"
    path.write_text("some notes\n")
    reader, writer = os.pipe()
    os.write(writer, b"some notes\n" if opened == "pipe" else b"")
    os.close(writer)
    ours, other = socket.socketpair()  # stays open without data, as that of ssh
    with other, path.open() as file:
        if opened == "loop":
            os.read(file.fileno(), 5)
        number = {"file": os.dup(file.fileno()), "socket": ours.detach()}.get(opened, reader)
        number = os.dup(file.fileno()) if opened == "loop" else number
        with open(number) as stdin:  # noqa: PTH123
            monkeypatch.setattr("sys.stdin", stdin)
            assert commands._read_prompt("Summarize") == prompt


def test_a_pipe_that_does_not_end_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(standard_input, "_PATIENCE", 0.0)
    reader, writer = os.pipe()
    with open(reader) as stdin, open(writer, "w") as end:  # noqa: PTH123
        monkeypatch.setattr("sys.stdin", stdin)
        Timer(0.3, end.close).start()
        assert commands._read_prompt("Summarize") == "Summarize"
    waits = "hearth: waits for the end of standard input; `< /dev/null` leaves it out\n"
    assert capsys.readouterr().err == waits


@pytest.mark.parametrize(("in_terminal", "shown"), [(True, r"a\x1b[2J"), (False, "a\x1b[2J")])
def test_an_answer_cannot_control_the_terminal(
    in_terminal: bool,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: in_terminal)
    commands._show("a\x1b[2J")
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("text", ["Hello", "What is 1/2 of 4?", "a b" * 2000])
def test_a_prompt_in_place_of_the_model_is_told_from_one(text: str, tmp_path: Path) -> None:
    context = mock.Mock(command_path="hearth generate")
    message = "^MODEL is missing: got .* after a model, as in `hearth generate smollm2 "
    with pytest.raises(typer.BadParameter, match=message):
        commands._require_model(context, text, None, tmp_path)


@pytest.mark.parametrize(
    ("model", "prompt"),
    [
        ("Hello", "Hi"),
        ("gemma3", None),
        ("smolm2", None),
        ("my model.gguf", None),
        ("Modelfile", None),
        ("my own model", None),
        ("hf:a b/c", None),
        ("org/name", None),
        ("llama3.2:1b", None),
    ],
)
def test_a_model_is_not_taken_for_a_prompt(
    model: str, prompt: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my own model").mkdir()
    monkeypatch.chdir(tmp_path)
    commands._require_model(mock.Mock(), model, prompt, tmp_path)


@pytest.mark.parametrize(
    ("typed", "code", "message"),
    first_by_day(
        [
            ("the \udcff", 1, r'prompt: got "the \\udcff", expected text in UTF-8'),
            ("", 2, "PROMPT is missing: standard input is empty."),
        ]
    ),
)
def test_generate_rejects_bad_standard_input(typed: str, code: int, message: str) -> None:
    result = run("generate", ".", typed=typed)
    assert (result.returncode, result.stdout) == (code, "")
    assert re.match(f"hearth generate: {message}.*\n$", result.stderr)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    first_by_day(
        [
            ((".", "x", "--temperature", "-1"), 2, "--temperature: .* greater than or equal to 0"),
            ((".", "x", "--top-k", "many"), 2, "--top-k: .* valid integer"),
            ((".", "the dog " * 200), 1, "prompt is too long: 403 tokens > 127 maximum: "),
            ((".", b"the dog \xff"), 1, r'prompt: got "the dog \\udcff", expected text in UTF-8'),
        ]
    ),
)
def test_generate_rejects_bad_values_in_one_line(
    arguments: tuple[str | bytes, ...], code: int, message: str
) -> None:
    result = run("generate", *arguments)
    assert result.returncode == code
    assert result.stdout == ""
    assert re.match(f"hearth generate: {message}", result.stderr)
    assert result.stderr.count("\n") == 1


@pytest.mark.nightly
def test_a_prompt_that_is_too_long_can_lose_its_middle() -> None:
    asked = ("generate", ".", "the dog " * 200, "--max-tokens", "4")
    shown = run(*asked, "--overflow", "truncate-middle")
    assert shown.returncode == 0
    assert re.match(r"124 prompt tokens \(279 dropped from the middle\) in ", shown.stderr)
    assert ", context 128 of 128, length, seed " in shown.stderr


def test_a_pipe_gets_answers_alone_and_a_prompt_gets_the_same_answer() -> None:
    options = ("--max-tokens=4", "--seed=3")
    piped = run("chat", ".", *options, typed="the dog\n/clear\nthe dog\n")
    answer, again, end = piped.stdout.split("\n")
    assert (answer, end) == (again, "")
    assert not answer.startswith(">")
    prompted = run("run", ".", "the dog", *options)
    assert (prompted.returncode, prompted.stdout) == (0, f"{answer}\n")
    assert re.fullmatch(r"\d+ prompt tokens in .*, length, seed 3\n", prompted.stderr)
    as_json = run("run", ".", "the dog", *options, "--json")
    assert (as_json.returncode, as_json.stderr) == (0, "")
    assert json.loads(as_json.stdout)["text"] == answer


@pytest.mark.nightly
def test_max_tokens_limits_each_answer_of_a_chat() -> None:
    result = subprocess.run(
        [*COMMAND, "chat", ".", "--max-tokens", "3"],
        input="the dog\n/clear\nthe fox\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=ENVIRONMENT,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert len(re.findall(" 3 tokens in .*, length, ", result.stderr)) == 2


@pytest.mark.nightly
def test_generate_replaces_characters_that_the_terminal_cannot_show() -> None:
    # Most tokens of the fake model are single bytes.
    flat = ("--temperature=9", "--top-k=0", "--top-p=1", "--min-p=0", "--seed=1", "--max-tokens=20")
    result = run("generate", ".", "the dog", *flat, PYTHONIOENCODING="ascii")
    assert result.returncode == 0, result.stderr
    assert "?" in result.stdout
    assert result.stdout.isascii()


@pytest.mark.nightly
def test_a_chat_replaces_bytes_that_are_not_utf8() -> None:
    result = subprocess.run(
        [*COMMAND, "chat", ".", "--max-tokens", "3"],
        input=b"the dog \xff\n",
        capture_output=True,
        timeout=PATIENCE,
        env={**ENVIRONMENT, "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert b" 3 tokens in " in result.stderr


def test_an_internal_error_of_an_answer_does_not_end_the_chat(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    notes: list[str] = []
    lines = iter(["the dog", "the fox", "/bye", "the dog"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    service = fakes.fake_service(LIBRARY, template=GEMMA)
    faults = [BaseException("a panic"), mock.DEFAULT, mock.DEFAULT]
    monkeypatch.setattr(service, "complete", mock.Mock(wraps=service.complete, side_effect=faults))
    reader = MessageReader(notes.append)
    with Chat(Path(), lambda _: service, {"max_tokens": "2"}) as chat:
        converse(chat, reader, show=mock.Mock(), note=notes.append)
        assert "a panic" in caplog.text
        assert "2 tokens in" in notes[-1]
        chat.clear()
        with pytest.raises(BrokenPipeError):  # the terminal was closed
            converse(chat, reader, show=mock.Mock(side_effect=BrokenPipeError), note=notes.append)


@pytest.mark.nightly
def test_every_sampling_field_is_a_flag() -> None:
    shown = run("generate", "--help").stdout
    for name in set(GenerationFields.model_fields) - NOT_HERE:
        assert f"--{name.replace('_', '-')} " in shown


class Biased(BaseModel):
    """A field that takes an object."""

    bias: dict[str, float] = Field(description="Numbers.")


@pytest.mark.parametrize(("typed", "read"), [('{"a": 1}', {"a": 1}), ("{a", "{a")])
def test_an_object_is_typed_as_json(typed: str, read: object) -> None:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @flags.takes(Biased)
    def show(**options: Any) -> None:
        typer.echo(repr(flags.typed_values(Biased, options)))

    assert CliRunner().invoke(app, ["--bias", typed]).output == f"{ {'bias': read} }\n"


class Named(BaseModel):
    """A field with a choice of values, and one that names its value."""

    kind: Literal["a", "b"] | None = Field(None, description="Kind.")
    rate: float = Field(1.0, description="Rate.", json_schema_extra={"metavar": "HZ"})


def test_the_value_of_a_flag_has_a_name() -> None:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @flags.takes(Named)
    def show(**_: Any) -> None: ...

    shown = CliRunner().invoke(app, ["--help"]).output
    assert "--kind a|b " in shown
    assert "--rate HZ " in shown


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal("--seed", "1", "--temperature", "0")
    try:
        yield terminal
    finally:
        terminal.close()


def test_a_conversation_continues_until_clear_or_bye(terminal: Terminal) -> None:
    assert "/help" in terminal.read_until("> ")
    terminal.write("the dog\n")
    first = prompt_tokens(terminal.read_until("seed 1\r\n> ", 30))
    terminal.write("the fox\n")
    shown = terminal.read_until("\n> ", 30)
    # The fake model never samples an end token: its first answer filled the context.
    assert "tokens > 127 maximum: the prompt exceeds the available context size" in shown
    assert "/clear starts a new conversation" in shown
    terminal.write("/clear\n")
    terminal.read_until("> ")
    terminal.write("the dog\n")
    terminal.read_until("the dog")
    assert prompt_tokens(terminal.read_until("seed 1\r\n> ", 30)) == first
    terminal.write("/nope\n")
    assert "/nope is not a command" in terminal.read_until("> ")
    terminal.write("/bye\n")
    assert terminal.process.wait(PATIENCE) == 0


def test_ctrl_c_stops_the_answer_but_not_the_chat(terminal: Terminal) -> None:
    terminal.read_until("> ")
    terminal.write("the dog\n")
    terminal.read_until("the dog\r\n")
    while not terminal.read(1):
        pass
    terminal.write("\x03")
    terminal.read_until("interrupted; Ctrl-C again exits\r\n> ")
    terminal.write("the fox\n")
    terminal.read_until("the fox\r\n")
    # What had come of the interrupted answer is in the next prompt.
    assert prompt_tokens(terminal.read_until("seed 1\r\n> ", 30)) > 20
    terminal.write("\x04")
    assert terminal.process.wait(PATIENCE) == 0
