"""Control characters in text for a terminal."""

from __future__ import annotations

import pytest

from hearthd.text.control_characters import escape_controls, print_line


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


def test_a_printed_line_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("model\x1b[2J.gguf: 3 MB")
    print_line("a\x07", to_stderr=True)
    assert capsys.readouterr() == ("model\\x1b[2J.gguf: 3 MB\n", "a\\x07\n")
