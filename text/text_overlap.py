"""What the ends and beginnings of texts have in common."""

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


def shared_start(text: str, other: str) -> str:
    """The characters with which both texts begin."""
    pairs = zip(text, other, strict=False)
    count = next((index for index, (a, b) in enumerate(pairs) if a != b), None)
    return text[: min(len(text), len(other)) if count is None else count]


def shared_end(text: str, other: str) -> str:
    """The characters with which both texts end."""
    return shared_start(text[::-1], other[::-1])[::-1]
