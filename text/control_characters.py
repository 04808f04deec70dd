"""Text of models, files and servers for a terminal, which acts on control characters.

A sequence that begins with ESC can write the clipboard, change the title, hide what was printed
and make the terminal type.
"""

from __future__ import annotations

import sys

_KEPT = "\t\n"
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))  # C0, DEL and C1
_ESCAPES = {
    code: chr(code).encode("unicode_escape").decode()
    for code in _CONTROLS
    if chr(code) not in _KEPT
}


def escape_controls(text: str) -> str:
    r"""The text with control characters as escapes such as `\x1b`, except tabs and line ends."""
    return text.translate(_ESCAPES)


def print_line(text: str, *, to_stderr: bool = False) -> None:
    """Print a line of a command, with control characters as escapes; raises OSError."""
    print(escape_controls(text), file=sys.stderr if to_stderr else sys.stdout, flush=True)
