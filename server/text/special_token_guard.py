"""Text from people who may not write special tokens, inside text from a template that may.

A message that says `<end_of_turn>` must not end the turn. A template sees the messages only after
`protect` has put a *mark*, a character that stands nowhere else, into each special token's name in
them: `<` mark `end_of_turn>`. The rest of a message is left as it is, so that the template's own
logic sees what it would see. `encode` takes the marks out again and reads the names as plain text.

It knows strings and a tokenizer. It knows no template and no messages.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from server.text.tokenizer import SpecialName, Tokenizer

# The private use area: no text that means something to others has these characters.
_MARKS = range(0xE000, 0xF900)


def choose_mark(value: Any) -> str | None:
    """A character that is nowhere in the strings of a JSON value; None if there is none left."""
    used = set(json.dumps(value, ensure_ascii=False))
    return next((chr(code) for code in _MARKS if chr(code) not in used), None)


def protect(value: Any, tokenizer: Tokenizer, mark: str) -> Any:
    """A JSON value with marks in every name of a special token, in keys too.

    A string whose end could become a name with what follows it is marked there as well.
    """
    if isinstance(value, str):
        return _protect(value, tokenizer, mark)
    if isinstance(value, list):
        return [protect(item, tokenizer, mark) for item in value]
    if isinstance(value, dict):
        return {
            _protect(key, tokenizer, mark): protect(item, tokenizer, mark)
            for key, item in value.items()
        }
    return value


def encode(text: str, tokenizer: Tokenizer, mark: str) -> tuple[int, ...]:
    """The ids of a text, names that are marked being plain text; without any, `Tokenizer.encode`.

    The library encodes what stands between two special tokens by itself, so a part that is read
    anew has the ids that it would have had.
    """
    if mark not in text:
        return tokenizer.encode(text)
    ids: list[int] = []
    end = 0
    for name in tokenizer.special_names(text):
        ids += tokenizer.read(text[end : name.start].replace(mark, ""), special=False)
        ids.append(name.token)
        end = name.end
    ids += tokenizer.read(text[end:].replace(mark, ""), special=False)
    return tokenizer.with_bos(tuple(ids))


def _protect(text: str, tokenizer: Tokenizer, mark: str) -> str:
    # Again until nothing is found: what is left of a broken name may hold another one.
    while names := [name for name in tokenizer.special_names(text) if _can_be_broken(name)]:
        for name in reversed(names):
            text = _insert(text, name.start + 1, mark)
    # Templates trim white space, and what then follows may complete a name.
    end = len(text.rstrip())
    for start in range(max(end - tokenizer.longest_special_name, 0), end):
        if tokenizer.begins_special_name(text[start:end]):
            text = _insert(text, start + 1, mark)
            break
    return text


def _can_be_broken(name: SpecialName) -> bool:
    return name.end - name.start > 1


def _insert(text: str, at: int, mark: str) -> str:
    return text[:at] + mark + text[at:]
