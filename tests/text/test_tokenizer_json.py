"""A tokenizer.json that cannot be used is refused in one sentence, in bake and in serve."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file

from hearthd.baker.tokenizer.tokenizer_files import answer_tokenizer, text_tokenizer_json
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.baker.weights.source import TokenizerError
from hearthd.text import tokenizer_json
from hearthd.text.tokenizer import BadTokenizer, Tokenizer
from hearthd.text.tokenizer_json import InvalidTokenizer, parse
from tests.by_day import first_by_day
from tests.server import fakes

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = fakes.gemma_like()
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}
TEMPLATE: dict[str, Any] = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
    "pair": [],
    "special_tokens": {},
}
REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
DEEP = "[" * 100_000 + "]" * 100_000


def bpe(**options: Any) -> dict[str, Any]:
    model = {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
    return {"model": {"type": "BPE", **model, **options}, "added_tokens": []}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def added(content: str, id_: int) -> dict[str, Any]:
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": id_, "content": content} | dict.fromkeys(flags, False)


BAD = {
    "a merge without its token": (bpe(merges=[["b", "a"]]), "needs the token 'ba'"),
    "a merge of a missing token": (bpe(merges=[["a", "z"]]), "needs the token 'z'"),
    "an older merge": (bpe(merges=["b a"]), "needs the token 'ba'"),
    "a merge of three": (bpe(merges=[["a", "b", "b"]]), "expected two tokens"),
    "a merge of numbers": (bpe(merges=[[1, 2]]), "expected two tokens"),
    "mixed merges": (bpe(merges=[["a", "b"], "a b"]), "texts only"),
    "merges of another type": (bpe(merges={}), "model.merges: got {}, expected a list"),
    "a long prefix": (bpe(continuing_subword_prefix="##long"), "does not begin with"),
    "a duplicate id": (bpe(vocab={"a": 0, "b": 0, "ab": 1}), r"\['a', 'b'\] have the same id 0"),
    "a large id": (bpe(vocab={"a": 0, "b": 1, "ab": 2**31}), "got id 2147483648, expected 0 to"),
    "a negative id": (bpe(vocab={"a": -1, "b": 1, "ab": 2}), "got id -1, expected 0 to"),
    "an id of another type": (bpe(vocab={"a": "0"}, merges=[]), "has id '0', expected an integer"),
    "no vocabulary": (bpe(vocab=None), "model.vocab: got None"),
    "an unknown token that is missing": (bpe(unk_token="<x>"), "<x>"),
    "no model": ({"model": None}, "model: got None, expected an object"),
    "another model": ({"model": {"type": "X", "vocab": {}}}, "did not match any variant"),
    "an unknown id out of range": ({"model": UNIGRAM | {"unk_id": 7}}, "model.unk_id: got 7, but"),
    "a score of NaN": ({"model": UNIGRAM | {"vocab": [["a", float("nan")]]}}, "a finite score"),
    "a score that is a text": ({"model": UNIGRAM | {"vocab": [["a", "0"]]}}, "a finite score"),
    "no unknown id": ({"model": UNIGRAM | {"unk_id": None}}, "unk_id"),
    "a regex that does not compile": ({"pre_tokenizer": split("(a")}, "unmatched parenthesis"),
    "an empty prefix": ({"normalizer": {"type": "Prepend", "prepend": ""}}, "an empty text"),
    "an empty pattern": (
        {"normalizer": {"type": "Replace", "pattern": {"Regex": ""}, "content": "a"}},
        "an empty pattern",
    ),
    "a bad charsmap": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        "precompiled_charsmap",
    ),
    "a character that becomes a megabyte": (
        {"normalizer": {"type": "Prepend", "prepend": "a" * 10**6}},
        "makes more than 256 characters of one",
    ),
    "a character that doubles many times": (
        {"normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 5000}},
        "makes more than 256 characters",
    ),
    "a template without end": (
        {"post_processor": TEMPLATE | {"single": TEMPLATE["single"] * 100}},
        "single has [0-9]+ pieces, expected at most 64",
    ),
    "a template of a token without end": (
        {"post_processor": TEMPLATE | {"special_tokens": {"<x>": {"ids": [1] * 65}}}},
        "'<x>' has 65 ids, expected at most 64",
    ),
    "a template without its token": ({"post_processor": TEMPLATE}, "single names '<x>'"),
    "a template in a sequence": (
        {"post_processor": {"type": "Sequence", "processors": [TEMPLATE]}},
        "single names '<x>'",
    ),
    "a template of a token that is missing": (
        {"post_processor": {"type": "BertProcessing", "sep": ["x", 9999], "cls": ["y", 9999]}},
        "adds token 9999",
    ),
    "an added token with another id": ({"added_tokens": [added("<x>", 9999)]}, "has id 9999, but"),
    "an added token that is a number": ({"added_tokens": [{"id": 1, "content": 1}]}, "content and"),
    "added tokens of another type": ({"added_tokens": 3}, "added_tokens: got 3, expected a list"),
}


@pytest.mark.parametrize("name", first_by_day(BAD, 10))
def test_a_bad_file_is_one_sentence_without_a_panic(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A panic that is caught has written to stderr."""
    change, message = BAD[name]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(LIBRARY.to_str()) | change))
    with pytest.raises(BadTokenizer, match=f"{message}.*; bake the bundle again"):
        Tokenizer.from_file(path, bos=None)
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": np.ones(1, np.float32)}, tmp_path / "model.safetensors")
    for read in (answer_tokenizer, text_tokenizer_json):
        with pytest.raises(TokenizerError, match=f"tokenizer.json is not a valid.*{message}"):
            read(SafetensorsSource(tmp_path))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("text", ["", "{", "[]", DEEP, '"\\ud800"'])
def test_a_text_that_is_no_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(tokenizer_json.InvalidTokenizer):
        tokenizer_json.parse(text)


def test_a_panic_is_an_exception() -> None:
    strip = tokenizers.decoders.Strip("a", 1, 1)
    with pytest.raises(tokenizer_json.LibraryPanic), tokenizer_json.no_panic():
        strip.decode(["a"])


def test_ids_may_have_gaps() -> None:
    vocabulary = {"a": 0, "b": 7, "ab": 20}
    whole = json.loads(LIBRARY.to_str()) | bpe(vocab=vocabulary)
    tokenizer = Tokenizer(tokenizer_json.build(tokenizer_json.parse(json.dumps(whole))), bos=None)
    assert [*tokenizer.words] == [b"a", *[b""] * 6, b"b", *[b""] * 12, b"ab"]


def test_texts_are_neither_cut_nor_padded(tmp_path: Path) -> None:
    """What `truncation` and `padding` say is for training."""
    whole = json.loads(LIBRARY.to_str()) | {
        "truncation": {
            "direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0
        },
        "padding": {
            "strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>",
        },
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": np.ones(1, np.float32)}, tmp_path / "model.safetensors")
    source = SafetensorsSource(tmp_path)
    for text in ("the", "the dog " * 20):
        expected = LIBRARY.encode(text).ids
        assert tokenizers.Tokenizer.from_str(json.dumps(whole)).encode(text).ids != expected
        for whole_texts in (False, True):
            path = tmp_path / "tokenizer.json"
            served = Tokenizer.from_file(path, bos=None, whole_texts=whole_texts)
            assert list(served.read(text)) == expected
        assert answer_tokenizer(source).encode(text).ids == expected
        baked = tokenizers.Tokenizer.from_str(text_tokenizer_json(source))
        assert baked.encode(text).ids == expected


def test_what_a_file_adds_to_a_text_has_a_limit() -> None:
    """All limits of BAD by day, without the library."""
    for name in BAD:
        if name.endswith((" without end", " times")):
            change, message = BAD[name]
            with pytest.raises(InvalidTokenizer, match=message):
                parse(json.dumps(json.loads(LIBRARY.to_str()) | change))
