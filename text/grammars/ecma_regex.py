r"""Translate regular expressions of ECMA-262, the dialect of JSON Schema, to llguidance's.

Both look alike and differ in meaning: `[[a]]` is a class with "[" and "a" and then "]" in one, and
a class in a class in the other; `\d`, `\w`, `\s` and `.` match other characters. So a pattern is
parsed as ECMA-262 says, and each character and class of it is written so that it has one meaning.

As in browsers, a character that needs no escape may have one (`\-`, `\@`), and `]`, `{` and `}`
may stand alone. Letters whose escape means something in other dialects only (`\A`, `\z`, `\h`) are
rejected, and so is what no grammar can enforce.
"""

from __future__ import annotations

import re
import string

_CONTROL = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_DIGITS, _WORD = "0-9", "0-9A-Z_a-z"
_SPACE = (
    r"\x{9}-\x{d}\x{20}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}"
    r"\x{3000}\x{feff}"
)
_CLASSES = {
    "d": _DIGITS, "w": _WORD, "s": _SPACE,
    "D": f"[^{_DIGITS}]", "W": f"[^{_WORD}]", "S": f"[^{_SPACE}]",
}  # fmt: skip
_ANY = r"[\x{0}-\x{10FFFF}]"
_NONE = r"[^\x{0}-\x{10FFFF}]"
_NOT_LINE_END = r"[^\x{a}\x{d}\x{2028}\x{2029}]"
_QUANTIFIER = re.compile(r"([*+?]|\{([0-9]+)(?:(,)([0-9]*))?\})\??")
_PYTHON_QUANTIFIER = re.compile(r"\{,[0-9]*\}")
_CODE = re.compile(r"u\{([0-9A-Fa-f]{1,8})\}|u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|c([A-Za-z])")
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_NAMED_GROUP = re.compile(r"\?<[A-Za-z_$][0-9A-Za-z_$]*>")
_PROPERTY = re.compile(
    r"[pP]\{((?:(?:Script|sc|Script_Extensions|scx|General_Category|gc)=)?[A-Za-z_]+)\}"
)
_BINARY_PROPERTIES = frozenset(
    "ASCII ASCII_Hex_Digit AHex Alphabetic Alpha Any Dash Emoji Emoji_Presentation "
    "Extended_Pictographic Hex_Digit Hex ID_Continue IDC ID_Start IDS Ideographic Ideo Lowercase "
    "Lower Math Uppercase Upper White_Space space XID_Continue XIDC XID_Start XIDS".split()
)
_CATEGORIES = frozenset(
    "C Cc Cf Cn Co L LC Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So "
    "Z Zl Zp Zs Letter Lowercase_Letter Uppercase_Letter Number Decimal_Number Punctuation Symbol "
    "Separator Mark Control Other".split()
)
_MAX_DEPTH = 100
_MAX_CODE = 0x10FFFF


class UnsupportedRegex(ValueError):
    """The pattern is not valid, or no grammar can enforce it."""


def translated(pattern: str) -> str:
    """The pattern in the dialect of llguidance; raises UnsupportedRegex."""
    reader = _Reader(pattern)
    text = reader.disjunction(depth=0)
    if reader.rest():
        raise UnsupportedRegex("unbalanced parentheses")
    return text


class _Reader:
    """Reads a pattern from the left to the right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def rest(self) -> str:
        """The character that follows, or an empty text."""
        return self._pattern[self._at : self._at + 1]

    def disjunction(self, depth: int) -> str:
        """Alternatives up to the end of the pattern or a parenthesis."""
        if depth > _MAX_DEPTH:
            raise UnsupportedRegex("parentheses that are nested too deeply")
        parts: list[str] = []
        while (character := self.rest()) not in ("", ")"):
            self._at += 1
            if character in "|^$":
                parts.append(character)
                if character != "|" and _QUANTIFIER.match(self._pattern, self._at):
                    raise UnsupportedRegex("a repeated anchor")
            else:
                parts.append(self._atom(character, depth) + self._quantifier())
        return "".join(parts)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._pattern, self._at)
        if match:
            self._at = match.end()
        return match

    def _atom(self, character: str, depth: int) -> str:
        at = self._at - 1
        if _QUANTIFIER.match(self._pattern, at) or _PYTHON_QUANTIFIER.match(self._pattern, at):
            raise UnsupportedRegex(f"nothing to repeat at {self._pattern[at:][:10]}")
        match character:
            case ".":
                return _NOT_LINE_END
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case "\\":
                code, characters = self._escape(in_class=False)
                return _character(code) if code is not None else f"[{characters}]"
        return _character(ord(character))

    def _quantifier(self) -> str:
        match = self._match(_QUANTIFIER)
        if match is None:
            return ""
        text, least, _, most = match.groups()
        if most and int(most) < int(least):
            raise UnsupportedRegex(f"numbers in the wrong order in {text}")
        return str(text)

    def _group(self, depth: int) -> str:
        if self._pattern.startswith("?:", self._at):
            self._at += 2
        elif self.rest() == "?" and not self._match(_NAMED_GROUP):
            raise UnsupportedRegex(_group_kind(self._pattern[self._at : self._at + 3]))
        body = self.disjunction(depth + 1)
        if self.rest() != ")":
            raise UnsupportedRegex("unbalanced parentheses")
        self._at += 1
        return f"(?:{body})"

    def _class(self) -> str:
        negated = self.rest() == "^"
        self._at += negated
        parts: list[str] = []
        while (character := self.rest()) != "]":
            if not character:
                raise UnsupportedRegex("an unclosed character class")
            parts.append(self._class_range())
        self._at += 1
        if not parts:
            return _ANY if negated else _NONE
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def _class_range(self) -> str:
        """A character or a set of a class, or a range."""
        low, text = self._class_atom()
        ahead = self._pattern[self._at : self._at + 2]
        if len(ahead) < 2 or ahead[0] != "-" or ahead[1] == "]":
            return text
        self._at += 1
        high, other = self._class_atom()
        if low is None or high is None:
            return f"{text}{_character(ord('-'))}{other}"
        if low > high:
            raise UnsupportedRegex("a range in the wrong order")
        return f"{text}-{other}"

    def _class_atom(self) -> tuple[int | None, str]:
        """The code of a character, and its text; None for a set."""
        character = self.rest()
        self._at += 1
        if character != "\\":
            return ord(character), _character(ord(character))
        code, characters = self._escape(in_class=True)
        return code, characters if code is None else _character(code)

    def _escape(self, *, in_class: bool) -> tuple[int | None, str]:
        """The code of an escaped character, or the characters of a set as the text of a class."""
        if match := self._match(_CODE):
            return self._code(match), ""
        if match := self._match(_PROPERTY):
            return None, _property(match)
        letter = self.rest()
        self._at += 1
        if letter in _CLASSES:
            return None, _CLASSES[letter]
        if letter in _CONTROL:
            return _CONTROL[letter], ""
        if letter == "b" and in_class:
            return 8, ""
        if letter == "0" and not self.rest().isdecimal():
            return 0, ""
        if letter and letter not in string.ascii_letters + string.digits:
            return ord(letter), ""
        if letter in ("b", "B"):
            raise UnsupportedRegex(f"the word boundary \\{letter}")
        if letter and letter in string.digits + "k" and not in_class:
            raise UnsupportedRegex("backreferences")
        raise UnsupportedRegex(f"the escape \\{letter}")

    def _code(self, match: re.Match[str]) -> int:
        braced, four, two, control = match.groups()
        if control:
            return ord(control) % 32
        code = int(braced or four or two, 16)
        if four and 0xD800 <= code < 0xDC00 and (low := self._match(_LOW_SURROGATE)):
            return 0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00
        if code > _MAX_CODE or 0xD800 <= code < 0xE000:
            raise UnsupportedRegex(f"the escape \\{match[0]}, which is not a character")
        return code


def _character(code: int) -> str:
    character = chr(code)
    return (
        character if character in string.ascii_letters + string.digits + "_" else rf"\x{{{code:x}}}"
    )


def _property(match: re.Match[str]) -> str:
    name = match[1]
    if "=" not in name and name not in _BINARY_PROPERTIES | _CATEGORIES:
        raise UnsupportedRegex(f"the property \\{match[0]}")
    return f"\\{match[0]}"


def _group_kind(start: str) -> str:
    """The name of a group that is not supported."""
    if start.startswith(("?=", "?!")):
        return "look-ahead"
    if start in ("?<=", "?<!"):
        return "look-behind"
    return f"the group ({start}"
