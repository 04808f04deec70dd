"""Every decoder of the library: the pieces of an answer join to its text, or it is refused."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders

from hearthd.text.answer_decoder import InvalidDecoder, answer_decoder
from hearthd.text.detokenize import Detokenizer
from hearthd.text.tokenizer import Tokenizer
from tests.server import fakes

if TYPE_CHECKING:
    from collections.abc import Sequence

LIBRARIES = (fakes.gemma_like(), fakes.byte_level())
ACCEPTED = {
    "ByteLevel": decoders.ByteLevel(),
    "Metaspace": decoders.Metaspace(),
    "Metaspace first": decoders.Metaspace("▁", "first"),
    "Fuse": decoders.Fuse(),
    "Replace": decoders.Replace("▁", " "),
    "Replace of a word": decoders.Replace(Regex("o.|the"), "-"),
    "ByteFallback": decoders.ByteFallback(),
    "Strip": decoders.Strip("▁", 1, 0),
    "Gemma": decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    ),
    "Llama 2": decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    ),
    "Llama 2, not legacy": decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace("▁", "first"), decoders.Fuse()]
    ),
    "after Fuse": decoders.Sequence([decoders.Fuse(), decoders.Metaspace()]),
    "a sequence of one": decoders.Sequence([decoders.ByteLevel()]),
    "in a sequence": decoders.Sequence(
        [decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback()]), decoders.Fuse()]
    ),
}
REFUSED = {
    "WordPiece": decoders.WordPiece(),
    "BPEDecoder": decoders.BPEDecoder(),
    "CTC": decoders.CTC(),
    "a word after Fuse": decoders.Sequence([decoders.Fuse(), decoders.Replace("the", "-")]),
    "bytes after Fuse": decoders.Sequence([decoders.Fuse(), decoders.ByteFallback()]),
    "bytes of others": decoders.Sequence([decoders.Replace("o", "0"), decoders.ByteFallback()]),
    "bytes twice": decoders.Sequence([decoders.ByteLevel(), decoders.Replace("o", "0")]),
    "both ends": decoders.Strip("▁", 1, 1),
}


def as_json(decoder: Any) -> Any:
    return json.loads(decoder.__getstate__())


@functools.cache
def with_decoder(name: str) -> list[tuple[Tokenizer, int]]:
    """Tokenizers with a decoder as it is served, and their sizes."""
    decoder = answer_decoder(as_json(ACCEPTED[name]))
    texts = [json.dumps(json.loads(one.to_str()) | {"decoder": decoder}) for one in LIBRARIES]
    libraries = map(tokenizers.Tokenizer.from_str, texts)
    return [(Tokenizer(one, bos=None), one.get_vocab_size()) for one in libraries]


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    detokenizer = Detokenizer(tokenizer)
    return "".join([*map(detokenizer.push, ids), detokenizer.flush()])


@pytest.mark.parametrize("name", ACCEPTED)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_the_pieces_of_random_tokens_join_to_the_whole(name: str, data: st.DataObject) -> None:
    for tokenizer, size in with_decoder(name):
        ids = data.draw(st.lists(st.integers(0, size - 1), max_size=12))
        assert pieces(tokenizer, ids) == tokenizer.decode(ids)


def test_spaces_between_words_stay() -> None:
    library = fakes.gemma_like()
    library.decoder = decoders.Metaspace()
    whole = json.loads(library.to_str())
    whole["decoder"] = answer_decoder(whole["decoder"])
    tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(whole)), bos=None)
    ids = tokenizer.read(" the the")
    assert pieces(tokenizer, ids) == tokenizer.decode(ids) == " the the"


@pytest.mark.parametrize("name", ["Replace", "ByteLevel", "Gemma", "Fuse", "ByteFallback"])
def test_a_decoder_that_needs_no_change_stays(name: str) -> None:
    assert answer_decoder(as_json(ACCEPTED[name])) == as_json(ACCEPTED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_a_decoder_whose_pieces_depend_on_others_is_refused(name: str) -> None:
    with pytest.raises(InvalidDecoder, match=r"decoder: .* is not supported here"):
        answer_decoder(as_json(REFUSED[name]))


@pytest.mark.parametrize("decoder", [None, {}, [], "x", {"type": "Sequence", "decoders": []}])
def test_a_missing_decoder_is_refused(decoder: Any) -> None:
    """The library would join tokens with spaces."""
    with pytest.raises(InvalidDecoder, match="decoder: "):
        answer_decoder(decoder)


def test_a_decoder_that_writes_a_megabyte_for_a_match_is_refused() -> None:
    decoder = {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 10**6}
    with pytest.raises(
        InvalidDecoder, match="a content of 1000000 characters, expected at most 64"
    ):
        answer_decoder(decoder)
