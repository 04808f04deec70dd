"""Streamed text equals the `tokenizers` library's decode of everything, cut at the stop string."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.text.detokenize import Detokenizer, StopFilter
from hearthd.text.tokenizer import Tokenizer
from tests.server import fakes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tokenizers

LIBRARY = {"byte fallback": fakes.gemma_like(), "byte level": fakes.byte_level()}
TEXTS = st.text(alphabet="thedogfxjumps ,.\n  é€😀▁\N{REPLACEMENT CHARACTER}ก", max_size=30)


def encoded(library: tokenizers.Tokenizer, text: str) -> list[int]:
    ids: list[int] = library.encode(text, add_special_tokens=False).ids
    return ids


@st.composite
def tokens(draw: st.DrawFn, library: tokenizers.Tokenizer) -> list[int]:
    """Encoded texts, stray bytes, special tokens, and ids that the vocabulary lacks."""
    ids: list[int] = []
    for _ in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            ids += encoded(library, draw(TEXTS))
        else:
            ids += draw(st.lists(st.integers(0, library.get_vocab_size() + 2), max_size=5))
    return ids


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before the stop string that is complete first, found character by character."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))]
    return text


def streamed(library: tokenizers.Tokenizer, ids: Sequence[int], stops: Sequence[str]) -> list[str]:
    detokenizer = Detokenizer(Tokenizer(library, bos=None))
    stop_filter = StopFilter(stops)
    pieces = []
    for token in ids:
        pieces.append(stop_filter.push(detokenizer.push(token)))
        if stop_filter.stopped:
            return pieces
    pieces.append(stop_filter.push(detokenizer.flush()))
    pieces.append(stop_filter.flush())
    return pieces


@pytest.mark.parametrize("form", LIBRARY)
@given(data=st.data())
def test_the_pieces_join_to_the_whole_text(form: str, data: st.DataObject) -> None:
    library = LIBRARY[form]
    ids = data.draw(tokens(library))
    assert "".join(streamed(library, ids, ())) == library.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("form", LIBRARY)
@given(text=TEXTS)
def test_the_position_is_that_of_the_character_a_token_is_in(form: str, text: str) -> None:
    tokenizer = Tokenizer(LIBRARY[form], bos=None)
    detokenizer, read = Detokenizer(tokenizer), b""
    for token in encoded(LIBRARY[form], text):
        assert detokenizer.position == len(read.decode(errors="ignore"))
        detokenizer.push(token)
        read += tokenizer.bytes_of(token)
    detokenizer.flush()
    assert detokenizer.position == len(text)


@pytest.mark.parametrize("form", LIBRARY)
@given(data=st.data())
def test_the_pieces_join_to_the_text_before_the_stop_string(form: str, data: st.DataObject) -> None:
    library = LIBRARY[form]
    ids = data.draw(tokens(library))
    whole = library.decode(ids, skip_special_tokens=True)
    # Substrings of the text are the stops that happen; others are near misses.
    stop = st.one_of(st.text("thedog é", min_size=1, max_size=4), substrings(whole))
    stops = data.draw(st.lists(stop, max_size=4))
    pieces = streamed(library, ids, stops)
    assert "".join(pieces) == cut(whole, stops)


def substrings(text: str) -> st.SearchStrategy[str]:
    if not text:
        return st.nothing()
    places = st.tuples(st.integers(0, len(text) - 1), st.integers(1, 6))
    return places.map(lambda place: text[place[0] : place[0] + place[1]])


@given(st.lists(st.text("ab", max_size=4)), st.lists(st.text("ab", min_size=1, max_size=5)))
def test_the_division_of_a_text_makes_no_difference(texts: list[str], stops: list[str]) -> None:
    stop_filter = StopFilter(stops)
    passed = ""
    for text in texts:
        passed += stop_filter.push(text)
        if stop_filter.stopped:
            break
    else:
        passed += stop_filter.flush()
    assert passed == cut("".join(texts), stops)
    assert stop_filter.stopped == any(stop in "".join(texts) for stop in stops)


def test_text_is_sent_as_soon_as_it_is_final() -> None:
    library = LIBRARY["byte fallback"]
    ids = encoded(library, "the é dog")
    tokens_of = [library.id_to_token(i) for i in ids]
    assert tokens_of == ["the", "▁", "<0xC3>", "<0xA9>", "▁", "dog"]
    assert streamed(library, ids, ()) == ["the", " ", "", "", "é ", "dog", "", ""]
    held = streamed(library, ids, ("e dog",))
    assert held == ["th", "", "", "", "e é ", "dog", "", ""]


def test_a_special_token_does_not_break_a_character() -> None:
    library = LIBRARY["byte fallback"]
    first, second = encoded(library, "é")
    assert "".join(streamed(library, [first, fakes.BOS, second], ())) == "é"


def test_an_incomplete_character_at_the_end_is_replaced() -> None:
    for library in LIBRARY.values():
        ids = encoded(library, "€")[:-1]
        pieces = streamed(library, ids, ())
        assert "".join(pieces[:-2]) == ""
        assert "".join(pieces) == library.decode(ids)
        assert "\N{REPLACEMENT CHARACTER}" in pieces[-2]
