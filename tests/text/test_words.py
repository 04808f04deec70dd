"""The bytes of a vocabulary in one piece, beside a tuple of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.text.words import Words


@given(st.lists(st.binary(max_size=4)), st.integers(0, 12))
def test_words_are_a_sequence(words: list[bytes], size: int) -> None:
    found = Words(words)
    assert (len(found), list(found), found.lengths.tolist()) == (
        len(words),
        words,
        list(map(len, words)),
    )
    assert [found[at] for at in range(-len(words), len(words))] == words + words
    assert found[size // 2 : size] == tuple(words[size // 2 : size])
    assert all(word in found and found.index(word) == words.index(word) for word in words)
    with pytest.raises(IndexError):
        found[len(words)]


@given(st.lists(st.binary(max_size=4)), st.integers(0, 12))
def test_a_resized_vocabulary_ends_with_empty_words(words: list[bytes], size: int) -> None:
    found = Words(words)
    assert list(found.resized(size)) == (words + [b""] * size)[:size]
    assert list(found) == words
