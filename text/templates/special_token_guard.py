"""Keep clients from writing special tokens: only the chat template may.

A message with the text `<end_of_turn>` must not end the turn. `protect` inserts a *mark*, a
character that occurs nowhere else, into each name of a special token in the messages: `<` mark
`end_of_turn>`. The template then sees messages that are otherwise unchanged. `encode` removes the
marks from the rendered prompt and reads the marked names as plain text.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hearthd.text.tokenizer import Position, SpecialName, Tokenizer

# Unicode's private use area, which texts rarely use.
_MARKS = range(0xE000, 0xF900)


def choose_marks(value: Any, count: int) -> list[str] | None:
    """Characters that no string of a JSON value contains, or None if there are fewer."""
    used = set(json.dumps(value, ensure_ascii=False))
    marks = list(itertools.islice((chr(c) for c in _MARKS if chr(c) not in used), count))
    return marks if len(marks) == count else None


def protect(value: Any, tokenizer: Tokenizer, mark: str) -> Any:
    """Insert marks into every name of a special token in a JSON value, keys included.

    The end of a string is marked too if it could become a name together with the text after it.
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
    """The ids of a text, with marked names as plain text; without marks as Tokenizer.encode.

    The library encodes the text between two special tokens separately, so encoding each part alone
    gives the same ids.
    """
    if mark not in text:
        return tokenizer.encode(text)
    ids: list[int] = []
    position: Position = "start"
    end = 0
    for name in tokenizer.special_names(text):
        plain = text[end : name.start].replace(mark, "")
        ids += tokenizer.read(plain, special=False, position=position)
        ids.append(name.token)
        end, position = name.end, "after special"
    plain = text[end:].replace(mark, "")
    ids += tokenizer.read(plain, special=False, position=position)
    return tokenizer.with_bos(tuple(ids))


def _protect(text: str, tokenizer: Tokenizer, mark: str) -> str:
    # Repeat: the rest of a marked name may contain another one.
    while names := [name for name in tokenizer.special_names(text) if _can_be_marked(name)]:
        for name in reversed(names):
            text = _insert(text, name.start + 1, mark)
    # Templates trim white space, and the text after it may complete a name.
    end = len(text.rstrip())
    for start in range(max(end - tokenizer.longest_special_name, 0), end):
        if tokenizer.begins_special_name(text[start:end]):
            text = _insert(text, start + 1, mark)
            break
    return text


def _can_be_marked(name: SpecialName) -> bool:
    return name.end - name.start > 1


def _insert(text: str, at: int, mark: str) -> str:
    return text[:at] + mark + text[at:]
