"""Merges that are left out change no text's tokens, as the `tokenizers` library finds them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE

from hearthd.baker.tokenizer.unused_merges import drop_unused_merges, used_merges

LETTERS = "abc"
WORDS = st.text(LETTERS, min_size=2, max_size=6)


def tokenizer_of(merges: list[tuple[str, str]], **options: Any) -> Tokenizer:
    tokens = dict.fromkeys([*LETTERS, *(t for a, b in merges for t in (a, b, a + b))])
    return Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges, **options))


def splits(words: list[str]) -> list[tuple[str, str]]:
    """Every split of a word into two that are tokens, the first word's first: SentencePiece's."""
    tokens = {*LETTERS, *words}
    pairs = ((word[:at], word[at:]) for word in words for at in range(1, len(word)))
    return [(left, right) for left, right in pairs if left in tokens and right in tokens]


@settings(max_examples=300, deadline=None)
@given(
    words=st.lists(WORDS, unique=True, max_size=25),
    order=st.randoms(use_true_random=False),
    texts=st.lists(st.text(LETTERS, max_size=20), min_size=5, max_size=10),
)
def test_texts_have_the_same_tokens_without_unused_merges(
    words: list[str], order: Any, texts: list[str]
) -> None:
    merges = splits(words)
    merges += order.sample(merges, len(merges) // 4)
    order.shuffle(merges)
    whole = tokenizer_of(merges)
    text = drop_unused_merges(whole.to_str())
    fewer = Tokenizer.from_str(text)
    assert json.loads(text)["model"]["merges"] == [
        list(merge) for merge in used_merges(merges, None)
    ]
    assert fewer.get_vocab() == whole.get_vocab()
    for given_text in [*texts, *words, "".join(words)]:
        assert fewer.encode(given_text).tokens == whole.encode(given_text).tokens


def test_a_token_keeps_the_merge_that_makes_it() -> None:
    merges = [("b", "c"), ("a", "b"), ("ab", "c"), ("a", "bc"), ("abc", "a"), ("ab", "ca")]
    assert used_merges(merges, None) == [("b", "c"), ("a", "b"), ("a", "bc"), ("abc", "a")]


@pytest.mark.parametrize(
    "options", [{"dropout": 0.5}, {"unk_token": "ab"}, {"continuing_subword_prefix": "c"}]
)
def test_all_merges_are_kept_if_one_does_not_start_with_characters(options: dict[str, Any]) -> None:
    model = {"type": "BPE", "merges": [["b", "c"], ["a", "b"], ["ab", "c"], ["a", "bc"]]}
    text = json.dumps({"model": model | options})
    assert drop_unused_merges(text) == text
    assert len(json.loads(drop_unused_merges(json.dumps({"model": model})))["model"]["merges"]) == 3
