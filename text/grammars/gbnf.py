"""Convert GBNF, the grammars of llama.cpp, to llguidance's variant of Lark.

    root ::= "a" [b-y]+ (digit | "z")*   # a comment
    digit ::= [0-9]{1,3}

A rule stays a rule and a set of characters becomes a terminal of one character, so the longest
match of a terminal never takes text from the rule after it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(
    r"""[ \t\r\n]+ | \#[^\n]*
      | (?P<rule>[A-Za-z0-9_-]+)[ \t]*::=
      | (?P<name>[A-Za-z0-9_-]+)
      | (?P<text>"(?:[^"\\]|\\.)*")
      | (?P<set>\[(?:[^\]\\]|\\.)*\])
      | (?P<repeat>\{[0-9]*,?[0-9]*\} | [*+?])
      | (?P<sign>[|().])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|(.)", re.DOTALL)
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}
_ANY = r"/[\u{0}-\u{10FFFF}]/"


class GbnfError(ValueError):
    """The grammar is not valid GBNF."""


def is_gbnf(grammar: str) -> bool:
    """Whether a grammar is GBNF; otherwise it is Lark."""
    return any(token == "rule" for token, _ in _tokens(grammar, strict=False))


def gbnf_to_lark(grammar: str) -> str:
    """The grammar in Lark; raises GbnfError."""
    rules: dict[str, list[str]] = {}
    body: list[str] | None = None
    depth = 0
    for symbol, text in _tokens(grammar, strict=True):
        if symbol == "rule":
            if depth:
                raise GbnfError(f"{text}: a rule begins inside parentheses")
            body = rules.setdefault(text, [])
            if body:
                raise GbnfError(f"{text}: a second rule with this name")
            body.append("")
            continue
        if body is None:
            raise GbnfError(f"{text}: expected a rule, such as root ::= ...")
        depth += (text == "(") - (text == ")") if symbol == "sign" else 0
        if depth < 0:
            raise GbnfError("unbalanced parentheses")
        body.append(_converted(symbol, text))
    if depth:
        raise GbnfError("unbalanced parentheses")
    if "root" not in rules:
        raise GbnfError("expected a rule root")
    names = {name: f"rule_{number}" for number, name in enumerate(rules)} | {"root": "start"}
    return "\n".join(f"{names[name]}: {_joined(body, names)}" for name, body in rules.items())


def _tokens(grammar: str, *, strict: bool) -> Iterator[tuple[str, str]]:
    """(symbol, text) of each token; without `strict` up to the first error."""
    at = 0
    while at < len(grammar):
        token = _TOKEN.match(grammar, at)
        if token is None:
            if strict:
                raise GbnfError(f"unexpected text: {grammar[at : at + 20]!r}")
            return
        at = token.end()
        if token.lastgroup:
            yield token.lastgroup, token[token.lastgroup]


def _converted(symbol: str, text: str) -> str:
    """A token in Lark; the name of a rule stays as it is."""
    match symbol:
        case "text":
            return _text("".join(_characters(text[1:-1])))
        case "set":
            return _set(text)
        case "sign" if text == ".":
            return _ANY
        case "repeat" if text.startswith("{,"):
            return "{0" + text[1:]
    return text


def _text(text: str) -> str:
    # Lark's strings are JSON strings, but it does not read pairs of surrogates.
    return '"' + "".join(c if ord(c) > 0xFFFF else json.dumps(c)[1:-1] for c in text) + '"'


def _characters(text: str) -> Iterator[str]:
    for escape in _ESCAPE.finditer(text):
        code, plain = escape.groups()
        if plain is not None:
            yield plain
        elif len(code) > 1:
            yield chr(int(code[1:], 16))
        else:
            yield _CONTROL.get(code, code)


def _set(text: str) -> str:
    """A set such as [^a-z\\n] as a regular expression of one character."""
    body = text[1:-1]
    negated = body.startswith("^")
    parts = [escape[0] for escape in _ESCAPE.finditer(body[negated:])]
    if not parts:
        raise GbnfError(f"{text}: an empty set")
    written = "".join(
        "-"
        if character == "-" and 0 < index < len(parts) - 1
        else f"\\u{{{ord(_character(character)):x}}}"
        for index, character in enumerate(parts)
    )
    return f"/[{'^' if negated else ''}{written}]/"


def _character(text: str) -> str:
    return next(_characters(text))


def _joined(body: list[str], names: dict[str, str]) -> str:
    """The body of a rule; an empty alternative becomes an empty text."""
    words: list[str] = []
    for word in [*body[1:], ""]:
        last = words[-1] if words else "("
        if word in ("|", ")", "") and last in ("|", "("):
            words.append('""')
        if word and word[0] in "*+?{" and last in ("|", "("):
            raise GbnfError(f"{word}: nothing to repeat")
        if re.fullmatch(r"[A-Za-z0-9_-]+", word):
            if word not in names:
                raise GbnfError(f"{word}: no rule has this name")
            word = names[word]
        words.append(word)
    return " ".join(words).strip()
