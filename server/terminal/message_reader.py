"""Messages as they are typed: lines, pastes of several lines, and blocks in triple quotes.

In a terminal, readline edits the lines and recalls earlier messages. A pipe and a dumb terminal are
read line by line.
"""

from __future__ import annotations

import os
import re
import select
import sys
from typing import TYPE_CHECKING

from hearthd.server.terminal.history import append_history, history_file, read_history

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

PROMPT, CONTINUED = "> ", ". "
QUOTES = '"""'
# A block begins a message, or the text of a command such as /system.
_BLOCK = re.compile(rf"(/\w+ +)?{QUOTES}(.*)", re.DOTALL)
_PASTE_SECONDS = 0.02  # in which the next line of a paste comes


class MessageReader:
    """Reads messages from standard input. `note` prints why the history cannot be kept.

    shows_prompts  a prompt on standard output begins each line; not if the input is a pipe
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.shows_prompts = sys.stdin.isatty()
        self._editor = _line_editor()
        self._brackets = self._editor is not None and _bracket_pastes(self._editor)
        self._file = history_file() if self._editor else None
        if self._editor and self._file:
            try:
                for entry in read_history(self._file):
                    self._editor.add_history(entry)
            except OSError as error:
                self._forget(error)

    @property
    def edited_line(self) -> str:
        """The line that Ctrl-C interrupted, if it is known."""
        return self._editor.get_line_buffer() if self._editor else ""

    def read(self) -> str:
        """The next message or command. Raises EOFError at the end, and KeyboardInterrupt."""
        text = self._lines(PROMPT)
        if block := _BLOCK.fullmatch(text):
            text = f"{block[1] or ''}{self._block(block[2])}"
        if self._editor and text.strip():
            self._editor.add_history(text)
            self._keep(text)
        return text

    def _block(self, text: str) -> str:
        """The text of a block up to its closing quotes, or to the end of the input."""
        while not text.rstrip().endswith(QUOTES):
            try:
                text += f"\n{self._lines(CONTINUED)}"
            except EOFError:
                return text.strip("\n")
        return text.rstrip().removesuffix(QUOTES).strip("\n")

    def _lines(self, prompt: str) -> str:
        """A line, or the lines of a paste."""
        text = input(prompt if self.shows_prompts else "")
        if self._editor and not self._brackets:
            while select.select([sys.stdin], [], [], _PASTE_SECONDS)[0]:
                text += f"\n{input()}"
        return text

    def _keep(self, text: str) -> None:
        if self._file:
            try:
                append_history(self._file, text)
            except OSError as error:
                self._forget(error)

    def _forget(self, error: OSError) -> None:
        self._note(f"{self._file}: the history is not kept: {error.strerror}")
        self._file = None


def _line_editor() -> ModuleType | None:
    """Python's readline, which `input` then uses; None if nothing edits lines here."""
    in_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not in_terminal or os.environ.get("TERM", "dumb") == "dumb":
        return None
    try:
        import readline
    except ImportError:  # a Python that was built without it
        return None
    readline.set_auto_history(False)
    return readline


def _bracket_pastes(editor: ModuleType) -> bool:
    """Let the terminal mark pastes, so that they are one line of input; False if it cannot."""
    if "libedit" in (editor.__doc__ or ""):
        return False
    editor.parse_and_bind("set enable-bracketed-paste on")
    return True
