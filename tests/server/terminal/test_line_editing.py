"""Line editing, pastes, blocks, the history and Ctrl-C in `hearth chat`, on a pseudo-terminal."""

from __future__ import annotations

import io
import json
import re
import stat
import subprocess
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from hearthd.server.terminal import history, message_reader
from hearthd.server.terminal.message_reader import MessageReader
from tests.by_day import first_by_day
from tests.patience import PATIENCE
from tests.server.terminal.pseudo_terminal import COMMAND, ENVIRONMENT, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PASTE = "\x1b[200~{}\x1b[201~"
UP, LEFT, START = "\x1b[A", "\x1b[D", "\x01"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts chats in a terminal that edits lines, with one history."""
    opened: list[Terminal] = []

    def start(**variables: str) -> Terminal:
        variables = {"TERM": "xterm", history.ENVIRONMENT: str(tmp_path / "history")} | variables
        opened.append(Terminal("--max-tokens", "2", **variables))
        opened[-1].welcome = opened[-1].read_until("> ")
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def entries(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def send(terminal: Terminal, typed: str) -> None:
    """Type a message, and wait for its answer."""
    terminal.write(f"{typed}\n")
    terminal.read_until("length, seed")
    terminal.read_until("> ")


def leave(terminal: Terminal) -> None:
    terminal.write("\x04")
    assert terminal.process.wait(PATIENCE) == 0


def test_a_line_is_edited_and_recalled_in_a_later_chat(
    start: Callable[..., Terminal], tmp_path: Path
) -> None:
    path = tmp_path / "history"
    terminal = start()
    send(terminal, f"he dog{START}t")
    leave(terminal)
    assert entries(path) == ["the dog"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = start()
    send(again, f"{UP}{LEFT}{LEFT}{LEFT}lazy ")
    leave(again)
    assert entries(path) == ["the dog", "the lazy dog"]


@pytest.mark.nightly
@pytest.mark.parametrize("brackets", first_by_day(["bracketed", "plain"]))
def test_a_paste_of_several_lines_is_one_message(
    brackets: str, start: Callable[..., Terminal], tmp_path: Path
) -> None:
    settings = tmp_path / "inputrc"
    settings.write_text("set enable-bracketed-paste off\n")
    more = {"FAKE_LIBEDIT": "1"} if brackets == "plain" else {}
    terminal = start(INPUTRC=str(settings), **more)
    text = "the dog\nthe fox\n  jumps"
    send(terminal, PASTE.format(text) if brackets == "bracketed" else text)
    leave(terminal)
    assert entries(tmp_path / "history") == [text]
    again = start()
    send(again, UP)
    leave(again)
    assert entries(tmp_path / "history") == [text] * 2


@pytest.mark.nightly
def test_a_block_is_one_message_and_continues_with_another_prompt(
    start: Callable[..., Terminal], tmp_path: Path
) -> None:
    terminal = start()
    for line in ('"""', "the dog"):
        terminal.write(f"{line}\n")
        terminal.read_until(". ")
    send(terminal, 'a """ b"""')
    leave(terminal)
    assert entries(tmp_path / "history") == ['the dog\na """ b']


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ('"""\nthe dog\na """ b"""\n', 'the dog\na """ b'),
        ('/system """be\nshort"""\n', "/system be\nshort"),
        ('"""the dog\n', "the dog"),  # the input ends in the block
        ('the """ dog\n', 'the """ dog'),
    ],
)
def test_a_block_ends_at_its_quotes(
    typed: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    reader = MessageReader(pytest.fail)
    assert reader.read() == message
    with pytest.raises(EOFError):
        reader.read()


@pytest.mark.parametrize("count", [1, 2])
def test_lines_that_come_at_once_are_one_message_without_marked_pastes(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pasted = ["the dog", "the fox"][:count]
    typed = mock.Mock(side_effect=pasted)
    monkeypatch.setenv(history.ENVIRONMENT, str(tmp_path / "history"))
    monkeypatch.setattr(message_reader, "_line_editor", lambda: mock.Mock(__doc__="libedit"))
    monkeypatch.setattr("select.select", lambda *_: (pasted[typed.call_count :], [], []))
    monkeypatch.setattr("builtins.input", typed)
    reader = MessageReader(pytest.fail)
    assert reader.read() == "\n".join(pasted)
    assert entries(tmp_path / "history") == ["\n".join(pasted)]


@pytest.mark.nightly
def test_ctrl_c_clears_the_line_and_leaves_when_it_is_repeated(
    start: Callable[..., Terminal], tmp_path: Path
) -> None:
    terminal = start()
    for _ in range(2):  # each clears a line
        terminal.write("the do")
        terminal.read_until("the do")
        terminal.interrupt()
        terminal.read_until("Ctrl-C again exits")
        terminal.read_until("> ")
    send(terminal, "the fox")
    assert entries(tmp_path / "history") == ["the fox"]
    terminal.interrupt()
    terminal.read_until("Ctrl-C again exits")
    terminal.read_until("> ")
    terminal.interrupt()
    assert terminal.process.wait(PATIENCE) == 0


@pytest.mark.nightly
def test_ctrl_c_leaves_a_block(start: Callable[..., Terminal], tmp_path: Path) -> None:
    terminal = start()
    terminal.write('"""the dog\n')
    terminal.read_until(". ")
    terminal.interrupt()
    terminal.read_until("> ")
    send(terminal, "the fox")
    assert entries(tmp_path / "history") == ["the fox"]


@pytest.mark.nightly
@pytest.mark.parametrize("file", first_by_day(["", "file/history"]))
def test_a_chat_without_a_history_continues(
    file: str, start: Callable[..., Terminal], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    terminal = start(**{history.ENVIRONMENT: str(tmp_path / file) if file else ""})
    assert ("the history is not kept: Not a directory" in terminal.welcome) == bool(file)
    send(terminal, "the dog")
    leave(terminal)


@pytest.mark.nightly
def test_the_history_is_in_the_state_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(history.ENVIRONMENT, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    default = tmp_path / ".local/state/hearth/chat-history"
    assert history.history_file() == default
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert history.history_file() == tmp_path / "state/hearth/chat-history"
    monkeypatch.setenv(history.ENVIRONMENT, "~/typed")
    assert history.history_file() == tmp_path / "typed"


def test_a_long_history_is_shortened_and_bad_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    assert history.read_history(path) == []
    count = 2 * history.MAX_ENTRIES
    history.append_history(path, "a\nb")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with path.open("a") as file:
        file.write('{"a": 1}\n"cut\n')
        file.writelines(f'"{number}"\n' for number in range(count - 3))
    assert history.read_history(path)[-1] == str(count - 4)
    assert len(path.read_text().splitlines()) == count
    history.append_history(path, "last")
    kept = history.read_history(path)
    assert (len(kept), kept[-1]) == (history.MAX_ENTRIES, "last")
    assert entries(path) == kept
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_long_file_that_is_not_a_history_is_not_shortened(tmp_path: Path) -> None:
    """As of $HEARTH_HISTORY=~/.bash_history."""
    path = tmp_path / "history"
    path.write_text("ls\n" * (2 * history.MAX_ENTRIES + 1))
    before = path.read_text()
    history.append_history(path, "last")
    assert history.read_history(path) == ["last"]
    assert path.read_text() == f'{before}"last"\n'


@pytest.mark.nightly
def test_a_pipe_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "history"
    result = subprocess.run(
        [*COMMAND, "chat", ".", "--max-tokens", "2"],
        input='the dog\n/clear\n"""\nthe\nfox\n"""\n/clear\n"""the\ndog',
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=ENVIRONMENT | {"TERM": "xterm", history.ENVIRONMENT: str(path)},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert len(re.findall(r" 2 tokens in ", result.stderr)) == 3
    assert "\x1b" not in result.stdout
    assert not path.exists()
