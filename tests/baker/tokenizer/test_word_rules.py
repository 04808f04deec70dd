"""The rules for words, against llama.cpp's tokens of texts in many languages.

tests/golden/record_word_rules.py recorded them. Where llama.cpp approximates the tokenizer.json of
the models, Hearth follows that file: the texts in which both differ are left out.
"""

from __future__ import annotations

import json
import random
import re
import time
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import Sequence, Split

from hearthd.baker.tokenizer.gguf_vocabulary import SPACED_BPE, convert
from hearthd.baker.tokenizer.word_rules import UNNAMED, WORD_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RECORDED: Mapping[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden" / "word_rules.json").read_text(encoding="utf-8")
)


def _never(_: str) -> bool:
    return False


def _has_mark(text: str) -> bool:
    return any(unicodedata.category(character).startswith("M") for character in text)


def _has_mark_or_inner_capital(text: str) -> bool:
    return _has_mark(text) or _has_inner_capital(text)


def _has_inner_capital(text: str) -> bool:
    return any(a.islower() and b.isupper() for a, b in pairwise(text))


def _changes_when_composed(text: str) -> bool:
    return unicodedata.normalize("NFC", text) != text


def _has_number(text: str) -> bool:
    return any(a.isnumeric() and b.isnumeric() for a, b in pairwise(text))


def _has_inner_capital_or_other_number(text: str) -> bool:
    categories = map(unicodedata.category, text)
    return _has_inner_capital(text) or ("No", "No") in pairwise(categories)


def _has_number_behind_space_or_letters_of_others(text: str) -> bool:
    return re.search(r" \d", text) is not None or not text.isascii()


# llama.cpp takes marks for no letters or capitals for any letter, does not compose characters, and
# keeps the digits of a number together, or with the space before them. Falcon's own rule splits
# letters beside ASCII by their bytes.
_OTHERS: Mapping[Callable[[str], bool], str] = {
    _has_mark: "gpt-4o kanana2 llama4 minimax-m2 talkie tekken",
    _has_mark_or_inner_capital: "kimi-k2",
    _has_inner_capital: "youtu",
    _has_inner_capital_or_other_number: "tiny_aya cohere2moe",
    _changes_when_composed: "qwen2 qwen35 modern-bert",
    _has_number: "deepseek-llm",
    _has_number_behind_space_or_letters_of_others: "falcon",
}
_LEFT_OUT = {name: differs for differs, names in _OTHERS.items() for name in names.split()}
# A rule for each way to split.
_SPLITS = {
    tuple(part.__getstate__() for part in rule.parts): name for name, rule in WORD_RULES.items()
}


def _tokenizer(rule: str | None, vocabulary: Mapping[str, Any] = RECORDED) -> Tokenizer:
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": vocabulary["tokens"],
        "tokenizer.ggml.merges": vocabulary["merges"],
        "tokenizer.ggml.bos_token_id": 0,
    }
    if rule is not None:
        metadata["tokenizer.ggml.pre"] = rule
    return convert(metadata)


def _tokens(rule: str | None, vocabulary: Mapping[str, Any] = RECORDED) -> list[list[int]]:
    tokenizer = _tokenizer(rule, vocabulary)
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in RECORDED["texts"]]


def _recorded(rule: str) -> list[list[int]]:
    ids: list[list[int]] = RECORDED["ids"][RECORDED["rules"][rule]]
    return ids


def test_every_rule_is_recorded() -> None:
    assert {*RECORDED["rules"]} == {*WORD_RULES}


@pytest.mark.parametrize("rule", WORD_RULES)
def test_texts_have_the_tokens_of_llama_cpp(rule: str) -> None:
    differs = _LEFT_OUT.get(rule, _never)
    rows = zip(RECORDED["texts"], _tokens(rule), _recorded(rule), strict=True)
    compared = [row for row in rows if not differs(row[0])]
    assert len(compared) > 50
    for text, actual, expected in compared:
        assert actual == expected, repr(text)


@pytest.mark.parametrize("rule", SPACED_BPE)
def test_vocabularies_of_characters_give_the_tokens_of_llama_cpp(rule: str) -> None:
    spaced = RECORDED["spaced"]
    expected = spaced["ids"][spaced["rules"][rule]]
    for text, actual, ids in zip(RECORDED["texts"], _tokens(rule, spaced), expected, strict=True):
        assert actual == ids, repr(text)


@pytest.mark.parametrize("rule", WORD_RULES)
def test_rules_compose_characters_as_tokenizer_json_does(rule: str) -> None:
    """llama.cpp does not."""
    composed, decomposed = (_tokenizer(rule).encode(text).ids for text in ("\xe9", "e\u0301"))
    assert (composed == decomposed) == (rule in ("qwen2", "qwen35", "modern-bert"))


@pytest.mark.parametrize("rule", WORD_RULES)
def test_texts_start_with_a_token_where_llama_cpp_adds_it(rule: str) -> None:
    assert (_tokenizer(rule).encode("a").ids[0] == 0) == (rule in RECORDED["start_with_bos"])


@pytest.mark.parametrize(
    ("rule", "text", "words"),
    [
        ("tiny_aya", "\xbd\xbe\xbc\xb2", ["\xbd\xbe\xbc", "\xb2"]),
        ("falcon", "a 12", ["a", "\u0120", "12"]),
    ],
)
def test_numbers_are_split_as_tokenizer_json_does(rule: str, text: str, words: list[str]) -> None:
    """llama.cpp splits them in other places."""
    assert _words(rule, text) == words


def _words(rule: str, text: str) -> list[str]:
    """The words of a text, before their bytes are represented by characters."""
    *splits, _ = WORD_RULES[rule].parts
    return [word for word, _ in Sequence(splits).pre_tokenize_str(text)]


def test_superbpe_splits_numbers_where_llama_cpp_s_pattern_does() -> None:
    pattern = Sequence(
        [Split(Regex(part), "isolated") for part in (r"\p{N}+", r"(?=(\d{3})+(?!\d))")]
    )
    rng = random.Random(0)
    for alphabet in ("1234567890", "12\u00bd", "1234\u00b2 a", "12\u0663\u00bd"):
        for _ in range(2000):
            text = "".join(rng.choices(alphabet, k=rng.randint(1, 40)))
            expected = [word for word, _ in pattern.pre_tokenize_str(text)]
            assert _words("superbpe", text) == expected, repr(text)


def test_thousands_are_split_where_llama_cpp_s_pattern_does() -> None:
    pattern = Split(Regex(r"\d{1,3}(?=(?:\d{3})*\b)"), "isolated")
    words = Sequence(list(WORD_RULES["tiny_aya"].parts[:2]))
    rng = random.Random(0)
    for alphabet in ("1234567890", "12345a", "123456 a_.\n", "12\u0663-\u00e9"):
        for _ in range(2000):
            text = "".join(rng.choices(alphabet, k=rng.randint(1, 40)))
            assert words.pre_tokenize_str(text) == pattern.pre_tokenize_str(text), repr(text)


@pytest.mark.parametrize("rule", _SPLITS.values())
def test_the_time_to_split_a_long_word_is_not_quadratic(rule: str) -> None:
    """llama.cpp's patterns for numbers take 25 s and more of the first text, of some rules."""
    start = time.process_time()
    for text in ("1", "\u00bd1", "a", " ", "\n", "_", "a1", "\u4e00"):
        _words(rule, text * 50_000 + "a")
    assert time.process_time() - start < 10


def test_a_file_that_names_no_rule_has_llama_cpp_s_own() -> None:
    assert _tokens(None) == _recorded(UNNAMED)
