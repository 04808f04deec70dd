"""What benchmarks.speech counts as wrong."""

from __future__ import annotations

import pytest

from benchmarks.speech import words, wrong_words


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("The quick, brown fox!", 0),
        ("the quick fox", 1),
        ("the very quick brown box", 2),
        ("", 4),
        ("fox brown quick the", 4),
    ],
)
def test_inserted_deleted_and_replaced_words_are_wrong(found: str, expected: int) -> None:
    assert wrong_words(words("The quick brown fox"), words(found)) == expected
