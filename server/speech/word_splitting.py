"""Words of tokens: by Unicode, by spaces, and punctuation with the word that it belongs to.

Source: `split_to_word_tokens` in tokenizer.py and `merge_punctuations` in timing.py of OpenAI's
Whisper.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BEFORE, _AFTER = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001 - full-width marks
# Their words are not separated by spaces: each character is one.
_WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
_REPLACEMENT = "\ufffd"


@dataclass(kw_only=True)
class SpokenWord:
    """A word, the number of its tokens, and its times in seconds. Joining words changes them."""

    text: str
    tokens: int
    start: float = 0.0
    end: float = 0.0


def words_of(
    tokens: Sequence[int], text_of: Callable[[Sequence[int]], str], language: str
) -> list[SpokenWord]:
    """The words of the tokens of a text; `text_of` decodes tokens."""
    characters = _characters(tokens, text_of)
    if language in _WITHOUT_SPACES:
        return characters
    words: list[SpokenWord] = []
    for each in characters:
        if not words or each.text.startswith(" ") or each.text.strip() in string.punctuation:
            words.append(each)
        else:
            words[-1].text += each.text
            words[-1].tokens += each.tokens
    return words


def _characters(tokens: Sequence[int], text_of: Callable[[Sequence[int]], str]) -> list[SpokenWord]:
    """The shortest runs of tokens that are complete characters."""
    decoded = text_of(tokens)
    found: list[SpokenWord] = []
    begin = position = 0
    for end in range(1, len(tokens) + 1):
        text = text_of(tokens[begin:end])
        cut = text.find(_REPLACEMENT)
        if cut < 0 or decoded[position + cut : position + cut + 1] == _REPLACEMENT:
            found.append(SpokenWord(text=text, tokens=end - begin))
            begin = end
            position += len(text)
    return found


def join_punctuation(words: Sequence[SpokenWord]) -> None:
    """Move punctuation to the word before or behind it; its own word stays, without a text."""
    following = len(words) - 1
    for index in range(len(words) - 2, -1, -1):
        mark = words[index]
        if mark.text.startswith(" ") and mark.text.strip() in _BEFORE:
            _move(mark, words[following], before=True)
        else:
            following = index
    previous = 0
    for index in range(1, len(words)):
        if not words[previous].text.endswith(" ") and words[index].text in _AFTER:
            _move(words[index], words[previous], before=False)
        else:
            previous = index


def _move(mark: SpokenWord, word: SpokenWord, *, before: bool) -> None:
    word.text = mark.text + word.text if before else word.text + mark.text
    word.tokens += mark.tokens
    mark.text, mark.tokens = "", 0
