"""Control characters in text for a terminal."""

from __future__ import annotations

import pytest

from hearthd.text.control_characters import escape_controls


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;cm0=\x07", r"\x1b]52;c;cm0=\x07"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("safe\rhidden\x08", r"safe\rhidden\x08"),
    ],
)
def test_a_terminal_gets_no_control_character(text: str, shown: str) -> None:
    assert escape_controls(text) == shown


def test_line_ends_tabs_and_every_other_character_stay() -> None:
    text = "a\tb\n\N{ZERO WIDTH JOINER}\N{RAINBOW}é\u2028 \\x1b"
    assert escape_controls(text) == text
