"""How much of the end of a text could be the beginning of a word that is still to come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def overlap(text: str, words: Sequence[str]) -> int:
    """The length of the longest suffix of `text` that is the beginning of one of `words`.

    A suffix that is a whole word does not count.
    """
    longest = max(map(len, words), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        end = text[-length:]
        if any(len(word) > length and word.startswith(end) for word in words):
            return length
    return 0
