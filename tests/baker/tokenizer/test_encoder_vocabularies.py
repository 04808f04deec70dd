"""Vocabularies of encoders in GGUF files, against the tokenizers of transformers.

What transformers makes of the texts is recorded by tests/golden/record_encoder_tokenizers.py.
"""

from __future__ import annotations

import base64
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import pytest
from tokenizers import Tokenizer
from tokenizers.models import Unigram

from hearthd.baker.tokenizer.folder_vocabulary import folder_tokenizer
from hearthd.baker.tokenizer.gguf_vocabulary import convert
from hearthd.baker.tokenizer.tokenizer_files import text_tokenizer_json
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import TokenizerError
from tests.baker.tokenizer.test_gguf_vocabulary import METADATA
from tests.models.families.encoders.encoder_cases import recorded_encoder

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden" / "encoder_tokenizers.json").read_text(encoding="utf-8")
)
# `llama-tokenize --ids` of llama.cpp (llama-cpp-python 0.3.36) gives these tokens.
CHARACTERS = (
    "<s> <pad> </s> <unk> <mask> \u4e2d \u56fd \u4eba \u4e2d\u56fd a b c ab abc , . A B \u662f "
    "</w> <0xE2> <0x82> <0xAC>"
).split()
OF_LLAMA_CPP: dict[str, tuple[list[int], list[int]]] = {  # also with lower case
    "\u4e2d\u56fd\u4eba\u662f abc": ([0, 8, 7, 18, 13, 2],) * 2,
    "  ab c\n\tABC, x\u20ac\u4e2d\u56fd abab.": (
        [0, 12, 11, 16, 17, 14, 20, 21, 22, 8, 12, 12, 15, 2],
        [0, 12, 11, 13, 14, 20, 21, 22, 8, 12, 12, 15, 2],
    ),
    " ": ([0, 2],) * 2,
    "\u4e2d \u56fd\u4ebaabcabc": ([0, 5, 6, 7, 13, 13, 2],) * 2,
    "\xe9\u20aca": ([0, 20, 21, 22, 9, 2],) * 2,
    "A\u3000B": ([0, 16, 17, 2], [0, 9, 10, 2]),
}
TEXTS: list[str] = GOLDEN["texts"]
NORMAL, CONTROL, UNKNOWN, UNUSED = 1, 3, 2, 5
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def add_wordpiece(writer: gguf.GGUFWriter, tokens: list[str], *, older: bool = False) -> None:
    """As convert_hf_to_gguf.py does; its older versions did not mark special tokens."""
    writer.add_tokenizer_model("bert")
    stored = [
        token
        if token in BERT_SPECIAL
        else token[2:]
        if token.startswith("##")
        else f"\N{LOWER ONE EIGHTH BLOCK}{token}"
        for token in tokens
    ]
    writer.add_token_list(stored)
    special = NORMAL if older else CONTROL
    writer.add_token_types([special if token in BERT_SPECIAL else NORMAL for token in tokens])
    ids = [tokens.index(token) for token in BERT_SPECIAL]
    writer.add_pad_token_id(ids[0])
    writer.add_unk_token_id(ids[1])
    writer.add_uint32("tokenizer.ggml.cls_token_id", ids[2])
    writer.add_sep_token_id(ids[3])
    writer.add_mask_token_id(ids[4])


def add_unigrams(writer: gguf.GGUFWriter, pieces: list[Any], charsmap: str) -> None:
    """As convert_hf_to_gguf.py does; in place of <mask> it has a token that fills up."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    writer.add_tokenizer_model("t5")
    count = len(special) + len(pieces)
    writer.add_token_list([*special, *(piece for piece, _ in pieces), f"[PAD{count}]"])
    writer.add_token_scores([0.0] * 4 + [score for _, score in pieces] + [-10000.0])
    types = [CONTROL, CONTROL, CONTROL, UNKNOWN, *[NORMAL] * len(pieces), UNUSED]
    writer.add_token_types(types)
    writer.add_add_space_prefix(True)
    writer.add_remove_extra_whitespaces(True)
    if charsmap:
        writer.add_precompiled_charsmap(base64.b64decode(charsmap))
    writer.add_bos_token_id(0)
    writer.add_pad_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(3)


def converted(path: Path, add: Callable[[gguf.GGUFWriter], None]) -> Tokenizer:
    """The tokenizer that is baked from a GGUF file."""
    writer = gguf.GGUFWriter(path, "bert")
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Tokenizer.from_str(text_tokenizer_json(open_weights(path)))


def require_recorded(tokenizer: Tokenizer, name: str) -> None:
    record = GOLDEN[name]
    for text, ids in zip(TEXTS, record["ids"], strict=True):
        if name != "xlm-roberta" or text != "<mask>":  # files have no such token
            assert tokenizer.encode(text).ids == ids, repr(text)
    pairs = itertools.pairwise(TEXTS[: len(record["pairs"]) + 1])
    for pair, ids, types in zip(pairs, record["pairs"], record["types"], strict=True):
        encoded = tokenizer.encode(*pair)
        assert (encoded.ids, encoded.type_ids) == (ids, types), pair


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("name", ["uncased", "cased", "accents"])
def test_wordpiece_gives_the_ids_of_transformers(name: str, older: bool, tmp_path: Path) -> None:
    tokens = GOLDEN[name]["tokens"]
    tokenizer = converted(
        tmp_path / "a.gguf", lambda writer: add_wordpiece(writer, tokens, older=older)
    )
    require_recorded(tokenizer, name)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("uncased", {}),
        ("uncased", {"do_lower_case": True, "tokenizer_class": "BertTokenizerFast"}),
        ("cased", {"do_lower_case": False, "cls_token": {"content": "[CLS]"}}),
        ("accents", {"strip_accents": False, "sep_token": "[SEP]"}),
    ],
)
def test_a_folder_with_vocab_txt_gives_the_ids_of_transformers(
    name: str, config: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*GOLDEN[name]["tokens"], ""]), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    recorded_encoder("bert").write(tmp_path)
    require_recorded(Tokenizer.from_str(text_tokenizer_json(open_weights(tmp_path))), name)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"tokenizer_class": "MPNetTokenizer"},
            "got 'MPNetTokenizer', supported with vocab.txt is",
        ),
        ({"mask_token": "<mask>"}, "vocab.txt: the vocabulary has no special token '<mask>'"),
    ],
)
def test_another_folder_with_vocab_txt_is_refused(
    config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(GOLDEN["cased"]["tokens"]), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(TokenizerError, match=f"^{tmp_path}.*{message}"):
        folder_tokenizer(tmp_path)


def test_unigrams_give_the_ids_of_transformers(tmp_path: Path) -> None:
    record = GOLDEN["xlm-roberta"]
    tokenizer = converted(
        tmp_path / "a.gguf",
        lambda writer: add_unigrams(writer, record["pieces"], record["charsmap"]),
    )
    require_recorded(tokenizer, "xlm-roberta")
    assert any(3 in ids for ids in record["ids"])  # some characters are unknown


def test_embeddinggemma_s_texts_end_with_a_token() -> None:
    """As the file says; a decoder's file that says so is rejected, since answers would end."""
    says = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    tokenizer = convert({**METADATA, **says}, whole_texts=True)
    assert tokenizer.encode("a").tokens == ["<|im_start|>", "a", "<|im_end|>"]


def test_a_token_is_behind_a_text_whose_last_state_is_its_vector() -> None:
    """As in Qwen3-Embedding's files, which have no token in front of a text."""
    says = {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": True}
    metadata = {**METADATA, **says, "general.architecture": "qwen3"}
    tokenizer = convert({**metadata, "qwen3.pooling_type": 3})
    assert tokenizer.encode("a").tokens == ["a", "<|im_end|>"]
    assert tokenizer.encode("a", add_special_tokens=False).tokens == ["a"]
    with pytest.raises(TokenizerError, match="add_eos_token = true"):
        convert({**metadata, "qwen3.pooling_type": 1})


def test_a_separator_is_between_the_texts_of_a_pair() -> None:
    """As in ModernBERT's files, whose separator is also the token that ends a text."""
    says: dict[str, object] = {
        f"tokenizer.ggml.add_{name}_token": True for name in ("bos", "eos", "sep")
    }
    says |= {"tokenizer.ggml.seperator_token_id": METADATA["tokenizer.ggml.eos_token_id"]}
    says |= {"tokenizer.ggml.pre": "modern-bert"}
    tokenizer = convert({**METADATA, **says}, whole_texts=True)
    assert tokenizer.encode("a").tokens == ["<|im_start|>", "a", "<|im_end|>"]
    pair = ["<|im_start|>", "a", "<|im_end|>", "b", "<|im_end|>"]
    assert tokenizer.encode("a", "b").tokens == pair
    assert tokenizer.encode("e\u0301").ids == tokenizer.encode("\u00e9").ids


def test_tokens_that_fill_up_a_vocabulary_change_no_text(tmp_path: Path) -> None:
    """An unknown character is not a token, and costs more than the least likely one."""
    likely, unlikely = ("\u2581", "a", "cde"), ("axc", "c", "d", "e")
    pieces = [*((token, -1.0) for token in likely), *((token, -10.0) for token in unlikely)]
    tokenizer = converted(tmp_path / "a.gguf", lambda w: add_unigrams(w, pieces, ""))
    plain = Unigram([("<unk>", 0.0), *pieces], 0, False)
    expected = [token.value for token in plain.tokenize("\u2581axcde")]
    assert tokenizer.encode("axcde", add_special_tokens=False).tokens == expected
    assert expected == ["\u2581", "a", "x", "cde"]


# --- what is rejected

UNIGRAMS: dict[str, Any] = {
    "tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": ["<s>", "</s>", "<unk>", "a"],
    "tokenizer.ggml.token_type": [3, 3, 2, 1], "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0],
    "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.unknown_token_id": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"add_space_prefix": False}, "add_space_prefix = false is not supported"),
        ({"precompiled_charsmap": [1, 2, 3]}, "precompiled_charsmap"),
        ({"precompiled_charsmap": [256]}, "precompiled_charsmap"),
        ({"scores": [0.0]}, "4 tokens but 1 scores"),
        ({"unknown_token_id": 4}, "unknown_token_id is 4, but there are 4 tokens"),
        ({"eos_token_id": None}, "eos_token_id is missing; convert "),
        (
            {"model": "plamo2"},
            "'plamo2' is not supported, only .*, 't5', 'rwkv', 'bert', 'whitespace'; use",
        ),
        ({"model": "bert"}, "cls_token_id is 101, but there are 4 tokens"),
    ],
    ids=str,
)
def test_an_unsupported_vocabulary_is_rejected(change: dict[str, object], message: str) -> None:
    changed = {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    with pytest.raises(TokenizerError, match=message):
        convert(UNIGRAMS | changed, whole_texts=True)


def test_decoders_have_no_vocabulary_of_encoders() -> None:
    with pytest.raises(TokenizerError, match=r"'bert' is not supported, .*, 't5', 'rwkv'; use"):
        convert(UNIGRAMS | {"tokenizer.ggml.model": "bert"})


@pytest.mark.parametrize("lower", [False, True])
def test_characters_between_spaces_are_merged_as_in_llama_cpp(lower: bool) -> None:
    merges = ["\u4e2d \u56fd", "a b", "ab c"]
    values: dict[str, Any] = {
        "model": "whitespace", "pre": "whitespace", "tokens": CHARACTERS, "merges": merges,
        "token_type": [CONTROL] * 5 + [NORMAL] * (len(CHARACTERS) - 5), "bos_token_id": 0,
        "eos_token_id": 2, "add_bos_token": True, "add_eos_token": True,
        "normalizer.lowercase": lower,
    }  # fmt: skip
    metadata = {f"tokenizer.ggml.{name}": value for name, value in values.items()}
    tokenizer = convert(metadata, whole_texts=True)
    for text, ids in OF_LLAMA_CPP.items():
        assert tokenizer.encode(text).ids == ids[lower]
    with pytest.raises(TokenizerError, match="'whitespace' is not supported"):
        convert(metadata)
