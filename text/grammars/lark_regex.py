"""From a Lark grammar without recursion to one regular expression.

It is for texts in JSON strings. llguidance reads the terminals of a grammar one after the other,
each as far as it goes. In a JSON string the text after a terminal may begin like an escape inside
of it, so the borders between terminals are lost. One regular expression has no borders.
"""

from __future__ import annotations

import json
import re

from hearthd.text.grammars.json_text import UnsupportedText, regex_in_json, text_in_json

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+ | (?://|\#)[^\n]*)
      | (?P<rule>(?:(?<=\n)|(?<![\s\S]))[?!]*(?P<name>[a-zA-Z_]\w*)(?:\.-?\d+)?[ \t]*:)
      | %import[ \t]+common\.(?P<common>\w+)(?:[ \t]*->[ \t]*(?P<alias>\w+))?
      | (?P<text>"(?:[^"\\\n]|\\.)*"i?)
      | (?P<regex>/(?:[^/\\\n]|\\.)+/[a-z]*)
      | (?P<ignored>->[ \t]*\w+)
      | (?P<repeat>~[ \t]*\d+(?:[ \t]*\.\.[ \t]*\d+)? | \{[0-9]*,?[0-9]*\} | [*+?])
      | (?P<reference>[a-zA-Z_]\w*)
      | (?P<sign>\.\.|[|()\[\]])""",
    re.VERBOSE,
)
# Lark's own terminals: lark/grammars/common.lark.
_COMMON = {
    "CNAME": r"[A-Za-z_][A-Za-z_0-9]*",
    "CR": r"\r",
    "DIGIT": "[0-9]",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
    "HEXDIGIT": "[0-9A-Fa-f]",
    "INT": "[0-9]+",
    "LCASE_LETTER": "[a-z]",
    "LETTER": "[A-Za-z]",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "NUMBER": r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?",
    "SIGNED_INT": "[+-]?[0-9]+",
    "SIGNED_NUMBER": r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?",
    "UCASE_LETTER": "[A-Z]",
    "WORD": "[A-Za-z]+",
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
}
_SLASH = re.compile(r"\\.", re.DOTALL)
_MAX_SIZE = 2**16  # characters

_Tokens = list[tuple[str, str]]  # (symbol, text)


def lark_regex(grammar: str, *, in_json: bool) -> str:
    """The regular expression in llguidance's dialect; raises UnsupportedText.

    With `in_json` it matches the texts in JSON strings, without the quotes.
    """
    return _Rules(grammar, in_json=in_json).regex("start")


class _Rules:
    """The rules of a grammar, each converted when another one refers to it."""

    def __init__(self, grammar: str, *, in_json: bool) -> None:
        self._in_json = in_json
        self._bodies: dict[str, _Tokens] = {}
        self._converted: dict[str, str] = {}
        self._open: list[str] = []  # rules that are being converted
        at, body = 0, _Tokens()
        while at < len(grammar):
            token = _TOKEN.match(grammar, at)
            if token is None:
                raise UnsupportedText(grammar[at : at + 20].split("\n")[0])
            at = token.end()
            if token["name"]:
                body = self._bodies.setdefault(token["name"], [])
            elif token["common"]:
                self._import(token["common"], token["alias"])
            elif token.lastgroup not in ("space", "ignored"):
                body.append((str(token.lastgroup), token[0]))

    def _import(self, name: str, alias: str | None) -> None:
        if name not in _COMMON:
            raise UnsupportedText(f"%import common.{name}")
        self._converted[alias or name] = self._pattern(_COMMON[name])

    def _pattern(self, pattern: str, flags: str = "") -> str:
        if self._in_json:
            return regex_in_json(pattern, flags)
        return f"(?{flags}:{_SLASH.sub(_without_slash, pattern)})"

    def regex(self, name: str) -> str:
        """The regular expression of a rule."""
        if name in self._converted:
            return self._converted[name]
        if name in self._open:
            raise UnsupportedText(f"the rule {name}, which refers to itself")
        if name not in self._bodies:
            raise UnsupportedText(f"{name}, which is not defined")
        self._open.append(name)
        body = [*self._bodies[name], ("end", "")]
        regex, rest = self._alternatives(body)
        if rest != [("end", "")]:
            raise UnsupportedText(f"{rest[0][1]} in the rule {name}")
        self._open.pop()
        if len(regex) > _MAX_SIZE:
            raise UnsupportedText(f"a grammar of this size: the rule {name} is too long")
        self._converted[name] = regex
        return regex

    def _alternatives(self, tokens: _Tokens) -> tuple[str, _Tokens]:
        """Alternatives, and the tokens after them."""
        parts = [""]
        while tokens[0] not in (("end", ""), ("sign", ")"), ("sign", "]")):
            if tokens[0] == ("sign", "|"):
                parts.append("")
                tokens = tokens[1:]
                continue
            item, tokens = self._item(tokens)
            while tokens[0][0] == "repeat":
                item, tokens = f"(?:{item}){_repeat(tokens[0][1])}", tokens[1:]
            parts[-1] += item
        return f"(?:{'|'.join(parts)})", tokens

    def _item(self, tokens: _Tokens) -> tuple[str, _Tokens]:
        (symbol, text), rest = tokens[0], tokens[1:]
        match symbol, text:
            case "text", _ if rest[0] == ("sign", "..") and rest[1][0] == "text":
                low, high = (_content(end)[0] for end in (text, rest[1][1]))
                return self._pattern(f"[{re.escape(low)}-{re.escape(high)}]"), rest[2:]
            case "text", _:
                content, flags = _content(text)
                written = text_in_json(content) if self._in_json else _plain(content)
                return f"(?{flags}:{written})" if flags else written, rest
            case "regex", _:
                pattern, _, flags = text[1:].rpartition("/")
                return self._pattern(pattern, flags), rest
            case "reference", _:
                return self.regex(text), rest
            case "sign", "(" | "[":
                inside, rest = self._alternatives(rest)
                if rest[0] != ("sign", ")" if text == "(" else "]"):
                    raise UnsupportedText("unbalanced parentheses")
                return f"{inside}?" if text == "[" else inside, rest[1:]
        raise UnsupportedText(text or "unbalanced parentheses")


def _without_slash(escape: re.Match[str]) -> str:
    """An escape, or a slash, which only a pattern between slashes escapes."""
    return "/" if escape[0] == r"\/" else escape[0]


def _plain(text: str) -> str:
    """The regular expression of a text."""
    return "".join(re.escape(c) if c.isprintable() else rf"\x{{{ord(c):x}}}" for c in text)


def _content(text: str) -> tuple[str, str]:
    """The content of a text such as "a", and its flags."""
    body, _, flags = text.rpartition('"')
    try:
        return json.loads(f'{body}"', strict=False), flags
    except ValueError as error:
        raise UnsupportedText(f"the text {text}") from error


def _repeat(text: str) -> str:
    """A repetition such as ~ 2..3 as in a regular expression."""
    if not text.startswith("~"):
        return text
    low, _, high = text[1:].replace(" ", "").partition("..")
    return f"{{{low},{high}}}" if high else f"{{{low}}}"
