"""Byte BPE of GGUF files, against llama.cpp's ids of SmolLM2's vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers

from hearthd.baker.tokenizer.gguf_vocabulary import convert, gguf_specials, names_no_rule
from hearthd.baker.tokenizer.tokenizer_files import (
    _check_template,
    chat_template,
    special_tokens,
    tokenizer_json,
)
from hearthd.baker.weights.source import TokenizerError
from hearthd.bundle import SpecialTokens
from hearthd.text import tokenizer as text_tokenizer
from tests.conftest import packaged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.baker.weights.source import WeightSource

GOLDEN = Path(__file__).parents[2] / "golden" / "tokenizer_smollm2.json"

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = ["Ġ t", "h e", "Ġt he", "1 2", "Ġ Ġ", "ð Ł"]
TOKENS = [*SPECIALS, *BYTES, *("".join(merge.split()) for merge in MERGES), "<user>"]
TYPES = [3] * len(SPECIALS) + [1] * (len(BYTES) + len(MERGES)) + [4]
METADATA: Mapping[str, object] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": TYPES,
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    return convert(METADATA)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("the the", ["t", "he", "Ġthe"]),
        ("   the", ["ĠĠ", "Ġthe"]),  # the last space belongs to the word
        ("12", ["1", "2"]),  # digits are never merged
        ("<|im_start|>the<|im_end|>", ["<|im_start|>", "t", "he", "<|im_end|>"]),
        ("a<user>b", ["a", "<user>", "b"]),
        ("😀", ["ðŁ", "ĺ", "Ģ"]),
        ("\x00", ["Ā"]),
    ],
)
def test_text_has_the_expected_tokens(small: Tokenizer, text: str, tokens: list[str]) -> None:
    assert small.encode(text).tokens == tokens


def test_a_file_that_names_no_rule_for_words_is_known() -> None:
    unnamed = {key: value for key, value in METADATA.items() if key != "tokenizer.ggml.pre"}
    assert names_no_rule(unnamed)
    assert names_no_rule({**METADATA, "tokenizer.ggml.pre": "default"})
    for metadata in (METADATA, {**unnamed, "tokenizer.ggml.model": "gemma4"}, {}):
        assert not names_no_rule(metadata)


def test_without_splitting_digits_they_are_merged() -> None:
    other = convert({**METADATA, "tokenizer.ggml.pre": "gpt-2"})
    assert other.encode("12").tokens == ["12"]


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-2", ["I", "'", "LL", " pay", " 12345", " CamelCase", "\u2026", "\n\n ", " now"]),
        ("smollm", ["I", "'", "LL", " pay", " ", "1", "2", "3", "4", "5", " CamelCase", "\u2026"]),
        (
            "llama-bpe",
            ["I", "'LL", " pay", " ", "123", "45", " CamelCase", "\u2026\n\n", " ", " now"],
        ),
        ("qwen2", ["I", "'LL", " pay", " ", "1", "2", "3", "4", "5", " CamelCase", "\u2026\n\n"]),
        ("gpt-4o", ["I'LL", " pay", " ", "123", "45", " Camel", "Case", "\u2026\n\n", " ", " now"]),
        (
            "tekken",
            ["I", "'LL", " pay", " ", "1", "2", "3", "4", "5", " Camel", "Case", "\u2026\n\n"],
        ),
    ],
)
def test_words_are_split_as_the_file_s_rule_says(pre: str, words: list[str]) -> None:
    text = "I'LL pay 12345 CamelCase\u2026\n\n  now"
    tokenizer = convert({**METADATA, "tokenizer.ggml.pre": pre})
    splits = tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in splits][: len(words)] == words


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("exaone4", ["ab", "1234", "\u4e2d\u306ec", " -", "d"]),
        ("falcon3", ["ab", "123", "4", "\u4e2d\u306ec", " -", "d"]),
        ("minicpm5", ["ab", "123", "4", "\u4e2d\u306ec", " -", "d"]),
        ("hunyuan-dense", ["ab", "123", "4", "\u4e2d\u306e", "c", " -", "d"]),
        ("deepseek-v3", ["ab", "123", "4", "\u4e2d\u306e", "c", " -", "d"]),
        ("deepseek-coder", ["ab", "1", "2", "3", "4", "\u4e2d\u306e", "c", " -", "d"]),
        ("seed-coder", ["ab", "1", "2", "3", "4", "\u4e2d\u306ec", " -", "d"]),
        ("command-r", ["ab", "1", "2", "3", "4", "\u4e2d\u306ec", " -", "d"]),
        ("llama3", ["ab", "123", "4", "\u4e2d\u306ec", " -", "d"]),
        ("jais-2", ["ab", "123", "4", "\u4e2d\u306ec", " -", "d"]),
        ("bailingmoe", ["ab", "1", "2", "3", "4", "\u4e2d\u306ec", " -", "d"]),
        ("exaone-moe", ["ab", "1", "2", "3", "4", "\u4e2d\u306ec", " -", "d"]),
        # As the ids of llama.cpp's models/ggml-vocab-*.gguf.out, which transformers computed.
        ("deepseek-llm", ["ab", "1", "2", "3", "4", "\u4e2d\u306e", "c", " -", "d"]),
        ("falcon", ["ab", "123", "4", "\u4e2d\u306ec", " ", "-", "d"]),
    ],
)
def test_rules_of_newer_families_split_numbers_and_characters(pre: str, words: list[str]) -> None:
    text = "ab1234\u4e2d\u306ec -d"
    splits = convert({**METADATA, "tokenizer.ggml.pre": pre}).pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in splits] == words


def test_tiny_aya_groups_digits_from_the_end_of_a_number() -> None:
    text = "x 12345"
    rule = {**METADATA, "tokenizer.ggml.pre": "tiny_aya"}
    splits = convert(rule).pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in splits] == ["x", " ", "12", "345"]


def test_deepseek_s_punctuation_has_ascii_letters_as_its_tokenizer_does() -> None:
    text = "\xc4pfel"
    rule = {**METADATA, "tokenizer.ggml.pre": "deepseek-llm"}
    splits = convert(rule).pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in splits] == ["\xc4", "pfel"]


def test_qwen35_keeps_a_mark_with_its_letter() -> None:
    text = "\u0915\u093f"  # a letter and a mark of Devanagari, which do not compose
    splits = {
        pre: convert({**METADATA, "tokenizer.ggml.pre": pre}).pre_tokenizer.pre_tokenize_str(text)
        for pre in ("qwen2", "qwen35")
    }
    assert [len(words) for words in splits.values()] == [2, 1]


def test_a_word_that_is_a_token_is_kept_whole_by_llama_s_rule() -> None:
    tokens = [*TOKENS[:-1], "hehe", "<user>"]
    types = [*TYPES[:-1], 1, 4]
    changed = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    for pre, expected in (("llama-bpe", ["hehe"]), ("dbrx", ["he", "he"])):
        tokenizer = convert({**METADATA, **changed, "tokenizer.ggml.pre": pre})
        assert tokenizer.encode("hehe", add_special_tokens=False).tokens == expected


def test_the_rule_decides_on_bos_where_the_file_does_not() -> None:
    assert gguf_specials({**METADATA, "tokenizer.ggml.pre": "llama-bpe"}).bos == 1
    assert gguf_specials({**METADATA, "tokenizer.ggml.pre": "qwen2"}).bos is None


def test_sentencepiece_has_the_defaults_of_llama_cpp() -> None:
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a"],
        "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0, -2.0, -3.0],
    }
    assert gguf_specials(metadata).bos == 1
    assert gguf_specials({**metadata, "tokenizer.ggml.bos_token_id": 2}).bos == 2
    assert gguf_specials(metadata).eos == [2]
    assert convert(metadata).encode("a a").ids == [1, 5, 5]
    assert gguf_specials({**metadata, "tokenizer.ggml.add_bos_token": False}).bos is None


_GEMMA4_TOKENS = [
    "<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)),
    "a", "b", "\u2581", "\n", "ab", "\u2581ab", "\n\n", "<|tool_call>",
]  # fmt: skip
GEMMA4: Mapping[str, object] = {
    "tokenizer.ggml.model": "gemma4",
    "tokenizer.ggml.tokens": _GEMMA4_TOKENS,
    "tokenizer.ggml.token_type": [3, 3, 3, 2, *[6] * 256, *[1] * 7, 4],
    "tokenizer.ggml.merges": ["a b", "\u2581 ab", "\n \n"],
    "tokenizer.ggml.bos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 3,
}


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("ab ab", ["ab", "\u2581ab"]),
        ("a\n\n\nb", ["a", "\n\n", "\n", "b"]),
        ("a<|tool_call>b", ["a", "<|tool_call>", "b"]),
        ("\u00e9\t", ["<0xC3>", "<0xA9>", "<0x09>"]),
    ],
)
def test_gemma4_merges_characters_and_falls_back_to_bytes(text: str, tokens: list[str]) -> None:
    encoding = convert(GEMMA4).encode(text)
    assert encoding.tokens == ["<bos>", *tokens]
    assert convert(GEMMA4).decode(encoding.ids) == text


def test_a_vocabulary_of_granite_embedding_is_like_gemma_4_s() -> None:
    """Its files have the type gpt2, and no token for unknown characters."""
    rule = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "granite-embed-multi-311m"}
    metadata = {**GEMMA4, **rule}
    del metadata["tokenizer.ggml.unknown_token_id"]
    for text in ("ab ab", "a\n\n\nb", "\u00e9\t"):
        ids = convert(metadata, whole_texts=True).encode(text, add_special_tokens=False).ids
        assert ids == convert(GEMMA4).encode(text, add_special_tokens=False).ids


def test_a_pair_for_roberta_has_its_end_token_twice() -> None:
    """As transformers' RobertaTokenizer: <s> A </s></s> B </s>."""
    ends = {f"tokenizer.ggml.{name}_token_id": 2 for name in ("eos", "seperator")}
    added = {f"tokenizer.ggml.add_{name}_token": True for name in ("bos", "eos", "sep")}
    metadata = {**METADATA, **ends, **added, "tokenizer.ggml.pre": "roberta-bpe"}
    assert convert(metadata, whole_texts=True).encode("a", "1").ids == [
        1, TOKENS.index("a"), 2, 2, TOKENS.index("1"), 2
    ]  # fmt: skip


def test_qwen_s_rule_composes_characters() -> None:
    tokenizer = convert({**METADATA, "tokenizer.ggml.pre": "qwen2"})
    assert tokenizer.encode("e\u0301").ids == tokenizer.encode("\u00e9").ids


@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_decoding_gives_the_text_back(small: Tokenizer, text: str) -> None:
    ids = small.encode(text, add_special_tokens=False).ids
    assert small.decode(ids, skip_special_tokens=False) == text


def test_control_tokens_are_special_and_user_defined_are_not(small: Tokenizer) -> None:
    added = small.get_added_tokens_decoder()
    assert [added[i].content for i in sorted(added) if added[i].special] == SPECIALS
    assert [added[i].content for i in sorted(added) if not added[i].special] == ["<user>"]


def test_bos_is_added_only_if_the_file_says_so() -> None:
    assert gguf_specials(METADATA).bos is None
    with_bos = {**METADATA, "tokenizer.ggml.add_bos_token": True}
    assert gguf_specials(with_bos).bos == 1
    assert convert(with_bos).encode("a").tokens == ["<|im_start|>", "a"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pre": "whitespace"},
            "pre 'whitespace' is not supported, only dbrx, .*, gpt-2, .*, tekken, .*; use the",
        ),
        ({"merges": None}, "merges is missing; convert "),
        ({"merges": ["ab"]}, "merges has 'ab', expected two parts"),
        ({"merges": ["zz zz"]}, "merges: 'zz zz' needs the token 'zz', which"),
        ({"add_eos_token": True}, "add_eos_token = true"),
        ({"token_type": [1]}, f"{len(TOKENS)} tokens but 1 types"),
    ],
)
def test_an_unsupported_vocabulary_is_rejected(change: dict[str, object], message: str) -> None:
    changed = {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    with pytest.raises(TokenizerError, match=message):
        convert({**METADATA, **changed})


# --- the real vocabulary


@pytest.fixture(scope="module")
def source() -> WeightSource:
    return packaged("smollm2")


@pytest.fixture(scope="module")
def smollm2(source: WeightSource) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_json(source))


@pytest.mark.slow
def test_smollm2_gives_the_ids_of_llama_cpp(smollm2: Tokenizer) -> None:
    cases = json.loads(GOLDEN.read_text())["cases"]
    assert len(cases) >= 300
    for case in cases:
        assert smollm2.encode(case["text"]).ids == case["ids"], repr(case["text"])


@pytest.mark.slow
def test_smollm2_gives_the_known_ids_of_its_system_prompt(smollm2: Tokenizer) -> None:
    """As many pages about the model print them."""
    text = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
        "trained by Hugging Face<|im_end|>\n"
    )
    known = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018]
    assert smollm2.encode(text).ids == [*known, 411, 407, 19712, 8182, 2, 198]


@pytest.mark.slow
def test_smollm2_has_its_special_tokens(source: WeightSource, smollm2: Tokenizer) -> None:
    assert special_tokens(source) == SpecialTokens(bos=None, eos=(2, 0, 4))
    assert [smollm2.id_to_token(token) for token in (2, 0)] == ["<|im_end|>", "<|endoftext|>"]
    assert "<|im_start|>assistant" in (chat_template(source) or "")


@pytest.mark.slow
@settings(deadline=None)
@given(text=st.text(st.characters(max_codepoint=0x3FFFF, exclude_categories=["Cs", "Cc"])))
def test_smollm2_gives_text_back(smollm2: Tokenizer, text: str) -> None:
    """But for some control characters and the planes behind: the vocabulary lacks their bytes."""
    ids = smollm2.encode(text).ids
    assert smollm2.decode(ids, skip_special_tokens=False) == text


def test_a_gguf_file_with_an_invalid_chat_template_says_how_to_replace_it() -> None:
    source: Any = SimpleNamespace(folder=None, files=lambda: (Path("a.gguf"),))
    message = "^a.gguf: the chat template is not valid Jinja: .*; write another with `gguf-new-meta"
    with pytest.raises(TokenizerError, match=message):
        _check_template(source, "{% if %}", text_tokenizer.Tokenizer(convert(METADATA), bos=None))
