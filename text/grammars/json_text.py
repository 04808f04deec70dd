r"""From a regular expression to one for the same texts in JSON strings, without the quotes.

JSON writes each character on its own, most of them as they are. So only the sets of characters
change: `[^a]` also matches `\"`, `\\` and `\n`. A control character that has no short escape in
JSON is left out.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING

import llguidance
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

# The characters that JSON writes in another way, and that are allowed.
_ESCAPES = {character: json.dumps(character)[1:-1] for character in '"\\\b\f\n\r\t'}
_PLAIN = r'[^\x00-\x1f"\\]'
_FLAGS = frozenset("ims")
_ATOM = re.compile(
    r"""(?P<set>\\(?:[xu]\{[^}]*\} | x[0-9A-Fa-f]{2} | u[0-9A-Fa-f]{4} | U[0-9A-Fa-f]{8}
                   | [pP]\{[^}]*\} | [pP][A-Za-z] | [^xupPU])
              | [^\\(\[{^$)|*+?])
      | \((?:\?:|\?P?<\w+>)?(?!\?) | \) | \| | [*+?]\?? | \{[0-9]+(?:,[0-9]*)?\}\??""",
    re.VERBOSE | re.DOTALL,
)


class UnsupportedText(ValueError):
    """The texts cannot be written in JSON strings."""


def text_in_json(text: str) -> str:
    """The regular expression of a text in a JSON string."""
    return re.escape(json.dumps(text, ensure_ascii=False)[1:-1])


def regex_in_json(pattern: str, flags: str = "") -> str:
    """The regular expression in llguidance's dialect; raises UnsupportedText."""
    if unknown := set(flags) - _FLAGS:
        raise UnsupportedText(f"the flag {min(unknown)} of a regular expression")
    body = "".join(_atoms(pattern, flags))
    return f"(?{flags}:{body})" if flags else f"(?:{body})"


def _atoms(pattern: str, flags: str) -> Iterator[str]:
    at = 0
    while at < len(pattern):
        if pattern[at] == "[":
            text, is_set = pattern[at : _class_end(pattern, at)], True
        elif atom := _ATOM.match(pattern, at):
            text, is_set = atom[0], atom["set"] is not None
        else:
            raise UnsupportedText(f"{pattern[at : at + 10]} in a regular expression")
        at += len(text)
        yield _set(text.replace(r"\/", "/"), flags) if is_set else text


def _class_end(pattern: str, start: int) -> int:
    """The end of a class such as [^a-z[0-9]]; raises UnsupportedText."""
    depth, at = 0, start
    while at < len(pattern):
        match pattern[at]:
            case "\\":
                at += 1
            case "[":
                depth += 1
                at += pattern.startswith("^", at + 1)
                at += pattern.startswith("]", at + 1)  # a bracket as the first character
            case "]":
                depth -= 1
        at += 1
        if not depth:
            return at
    raise UnsupportedText("a character class without an end")


def _set(text: str, flags: str) -> str:
    """The regular expression of a set of characters, as JSON writes them."""
    members = _ascii(text, flags)
    escapes = [escape for character, escape in _ESCAPES.items() if members[ord(character)]]
    if not escapes and not members[:32].any():
        return text
    inside = (r"[\x00-\x{10FFFF}]" if "s" in flags else r"[^\n]") if text == "." else text
    return f"(?:{'|'.join([f'[{inside}&&{_PLAIN}]', *map(re.escape, escapes)])})"


@functools.lru_cache(maxsize=1024)
def _ascii(text: str, flags: str) -> NDArray[np.bool_]:
    """Which characters of ASCII a set has, as llguidance reads it: bool (128,)."""
    pattern = text if text.startswith("\\") else text.replace("/", r"\/")
    grammar = llguidance.LLMatcher.grammar_from_lark(f"start: /{pattern}/{flags}")
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar, log_level=0)
    if matcher.is_error():
        raise UnsupportedText(f"{text} in a regular expression")
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    return bits[:128].view(np.bool_)
