"""The tokenizer beside the library that it wraps."""

from __future__ import annotations

import gc
import json
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, processors

from hearthd.bundle import CONTEXTS_PER_TEXT, TEXT_BYTES_PER_TOKEN
from hearthd.text.errors import TextTooLong
from hearthd.text.tokenizer import BadTokenizer, Tokenizer
from tests.server import fakes

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = fakes.gemma_like()


def test_bos_is_added_once() -> None:
    tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS)
    plain = tuple(LIBRARY.encode("the dog", add_special_tokens=False).ids)
    assert tokenizer.encode("the dog") == (fakes.BOS, *plain)
    assert tokenizer.encode("<bos>the dog") == (fakes.BOS, *plain)
    assert tokenizer.encode("the dog<bos>") == (fakes.BOS, *plain, fakes.BOS)
    assert Tokenizer(LIBRARY, bos=None).encode("the dog") == plain


def test_a_whole_text_has_the_tokens_that_the_tokenizer_puts_around_it() -> None:
    library = tokenizers.Tokenizer.from_str(LIBRARY.to_str())
    assert Tokenizer(library, bos=fakes.BOS).encode_whole("the") == (
        fakes.BOS,
        *LIBRARY.encode("the").ids,
    )
    library.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", fakes.BOS), ("<eos>", fakes.EOS)]
    )
    expected = (fakes.BOS, *LIBRARY.encode("the").ids, fakes.EOS)
    for bos in (None, fakes.BOS):
        tokenizer = Tokenizer(library, bos=bos)
        assert tokenizer.encode_whole("the") == expected
        assert tokenizer.read("the") == expected[1:-1]


def test_a_text_longer_than_any_context_raises() -> None:
    tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS, context=64)
    longest = ("the quick brown fox jumps over " * 64)[: 64 * TEXT_BYTES_PER_TOKEN]
    assert tokenizer.encode(longest) == Tokenizer(LIBRARY, bos=fakes.BOS).encode(longest)
    for read in (tokenizer.encode, tokenizer.read, tokenizer.special_names):
        with pytest.raises(TextTooLong, match="1025 bytes > 1024 maximum"):
            read(longest + "x")


@given(st.text(), st.integers(1, 40))
def test_tokens_for_more_than_a_few_contexts_raise(text: str, context: int) -> None:
    """A token has at least one byte. The count is an estimate: twice the limit must raise."""
    text *= 1 + 8 * context // max(1, len(text))
    whole = Tokenizer(LIBRARY, bos=None).read(text)
    tokenizer = Tokenizer(LIBRARY, bos=None, context=context)
    if len(text.encode(errors="replace")) <= CONTEXTS_PER_TEXT * context:
        assert tokenizer.read(text) == whole
    elif len(whole) > 2 * CONTEXTS_PER_TEXT * context:
        with pytest.raises(TextTooLong):
            tokenizer.read(text)


def test_bytes_not_characters_limit_a_text() -> None:
    """A character that the vocabulary lacks is up to four tokens."""
    tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS, context=64)
    longest = "\N{FOX FACE}" * (64 * CONTEXTS_PER_TEXT // 4)
    assert tokenizer.encode(longest) == Tokenizer(LIBRARY, bos=fakes.BOS).encode(longest)
    with pytest.raises(TextTooLong, match="at least 260 tokens > 256 maximum"):
        tokenizer.encode(longest + "\N{FOX FACE}")
    with pytest.raises(TextTooLong, match="1028 bytes > 1024 maximum"):
        tokenizer.encode("\N{FOX FACE}" * 257)


def test_special_tokens_have_names_and_no_text() -> None:
    tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS)
    ids = tokenizer.encode("the<eos>")
    assert ids[-1] == fakes.EOS
    assert tokenizer.decode(ids) == "the"
    assert tokenizer.name(fakes.EOS) == "<eos>"
    assert tokenizer.is_silent(fakes.EOS)
    assert tokenizer.is_silent(10**6)
    assert not tokenizer.is_silent(ids[1])


@given(st.text("thedogfx ,.\n é€😀"))
def test_decode_reverses_encode(text: str) -> None:
    tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_byte_tokens_are_recognized() -> None:
    tokenizer = Tokenizer(LIBRARY, bos=None)
    byte_ids = {i for i in range(LIBRARY.get_vocab_size()) if tokenizer.is_byte(i)}
    assert byte_ids == {LIBRARY.token_to_id(f"<0x{byte:02X}>") for byte in range(256)}


@pytest.mark.parametrize("content", ["", "{", "{}", '{"version": "1.0"}'])
def test_an_invalid_tokenizer_file_raises(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(BadTokenizer, match="bake the bundle again"):
        Tokenizer.from_file(path, bos=None)
    path.unlink()
    with pytest.raises(BadTokenizer, match=r"tokenizer\.json"):
        Tokenizer.from_file(path, bos=None)


def test_a_vocabulary_without_its_unknown_token_raises(tmp_path: Path) -> None:
    path, whole = tmp_path / "tokenizer.json", json.loads(LIBRARY.to_str())
    whole["model"] |= {"byte_fallback": False, "unk_token": "<missing>"}
    path.write_text(json.dumps(whole))
    with pytest.raises(BadTokenizer, match=r"<missing>.*bake the bundle again"):
        Tokenizer.from_file(path, bos=None)


def _with_merges_as_strings(text: str) -> str:
    """As files were written that are older than the library's version 0.20."""
    whole = json.loads(text)
    whole["model"]["merges"] = [" ".join(merge) for merge in whole["model"]["merges"]]
    return json.dumps(whole)


@pytest.mark.parametrize(
    "text",
    [
        fakes.gemma_like(special=["<start>", "<end>"]).to_str(),
        fakes.byte_level().to_str(),
        _with_merges_as_strings(LIBRARY.to_str()),
        tokenizers.Tokenizer(models.WordLevel({"the": 0, "?": 1}, unk_token="?")).to_str(),
    ],
    ids=["gemma", "bytes", "old", "words"],
)
def test_a_file_gives_the_same_tokenizer_as_the_library(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json", bos=None, whole_texts=True)
    assert json.loads(tokenizer._tokenizer.to_str()) == json.loads(
        tokenizers.Tokenizer.from_str(text).to_str()
    )
    plain = "the quick <start> brown <eos>fox é€<end>"
    assert tokenizer.read(plain) == tuple(tokenizers.Tokenizer.from_str(text).encode(plain).ids)


@pytest.mark.nightly
def test_models_share_the_tokenizer_of_equal_files(tmp_path: Path) -> None:
    """A reload has the old and the new model in memory."""
    path, copy = tmp_path / "tokenizer.json", tmp_path / "copy.json"
    path.write_text(LIBRARY.to_str())
    copy.write_text(LIBRARY.to_str())
    tokenizer = Tokenizer.from_file(path, bos=None, context=8)
    assert Tokenizer.from_file(copy, bos=None, context=8) is tokenizer
    assert Tokenizer.from_file(path, bos=None, context=9) is not tokenizer
    assert Tokenizer.from_file(path, bos=1, context=8) is not tokenizer
    path.write_text(fakes.byte_level().to_str())
    assert Tokenizer.from_file(path, bos=None, context=8) is not tokenizer
    unused = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert unused() is None


@pytest.mark.parametrize("library", [LIBRARY, fakes.byte_level()], ids=["gemma", "bytes"])
@given(text=st.text("thedogfx ,.\n é€😀<>", max_size=20))
def test_token_bytes_join_to_the_text(library: Any, text: str) -> None:
    tokenizer = Tokenizer(library, bos=None)
    ids = tokenizer.read(text + "<eos>")
    assert b"".join(map(tokenizer.bytes_of, ids)).decode() == text + "<eos>"


def test_special_names_can_be_read_as_plain_text() -> None:
    tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS)
    text = "the <eos>dog"
    assert fakes.EOS in tokenizer.read(text)
    assert fakes.EOS not in tokenizer.read(text, special=False)
    assert tokenizer.decode(tokenizer.read(text, special=False)) == text
    names = tokenizer.special_names(text)
    assert [(text[name.start : name.end], name.token) for name in names] == [("<eos>", fakes.EOS)]
