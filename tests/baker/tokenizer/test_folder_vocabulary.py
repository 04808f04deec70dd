"""Folders without tokenizer.json are read as transformers and SentencePiece read them."""

from __future__ import annotations

import base64
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.pipeline.bake import resolve
from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.baker.tokenizer.folder_vocabulary import folder_tokenizer
from hearthd.baker.tokenizer.tokenizer_files import read_tokenizer, text_tokenizer_json
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import TokenizerError
from hearthd.text.tokenizer import Tokenizer
from hearthd.text.tokenizer_json import build, parse
from tests.baker.pipeline.test_bake_encoder import write_model
from tests.baker.small_gemma import small_gemma

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = (
    "llama", "llama legacy", "llama added", "llama older", "llama symbols", "gemma", "qwen",
    "tekken",
)  # fmt: skip
CONFIG = "tokenizer_config.json"


@functools.cache
def recorded() -> dict[str, Any]:
    """What record_folder_tokenizers.py wrote."""
    cases: dict[str, Any] = json.loads((GOLDEN / "folder_tokenizers.json").read_text("utf-8"))
    return cases


def texts() -> list[str]:
    """The recorded texts, in many languages."""
    file = json.loads((GOLDEN / "tokenizer_smollm2.json").read_text(encoding="utf-8"))
    short = [case["text"] for case in file["cases"] if len(case["text"]) < 120][:160]
    return [*short, *recorded()["talks"]]


def write(folder: Path, case: str) -> Path:
    """The files of a case."""
    folder.mkdir(exist_ok=True)
    for name, data in recorded()[case]["files"].items():
        (folder / name).write_bytes(base64.b64decode(data))
    return folder


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("case", CASES)
def test_the_tokens_are_those_of_transformers(tmp_path: Path, case: str) -> None:
    tokenizer = folder_tokenizer(write(tmp_path, case))
    ids = [tokenizer.encode(text).ids for text in texts()]
    assert ids == recorded()[case]["ids"]
    assert len({*map(tuple, ids)}) > 160


def test_an_early_tekken_json_has_the_special_tokens_of_mistral_common(tmp_path: Path) -> None:
    """20 in place of the 8 of the recorded file, so that other tokens have 12 more as their id."""
    file = write(tmp_path, "tekken") / "tekken.json"
    data = json.loads(file.read_text())
    sizes = {"default_num_special_tokens": 20, "default_vocab_size": 712}
    del data["special_tokens"]
    file.write_text(json.dumps({**data, "config": {**data["config"], **sizes, "version": "v3"}}))
    tokenizer = folder_tokenizer(tmp_path)
    assert [tokenizer.token_to_id(name) for name in ("</s>", "[TOOL_CALLS]", "[PREFIX]")] == [
        2,
        9,
        14,
    ]
    pairs = zip(texts(), recorded()["tekken"]["ids"], strict=False)
    plain = [(text, ids) for text, ids in pairs if "<" not in text and "[" not in text]
    assert len(plain) > 100
    for text, ids in plain:
        assert tokenizer.encode(text).ids == [id_ if id_ < 8 else id_ + 12 for id_ in ids]


def test_unigrams_of_an_encoder_are_those_of_transformers(tmp_path: Path) -> None:
    """In the order of fairseq, with another space for runs of spaces, and with <mask>."""
    tokenizer = folder_tokenizer(write(tmp_path, "xlm-roberta"))
    ids = [tokenizer.encode(text).ids for text in texts()]
    assert ids == recorded()["xlm-roberta"]["ids"]
    assert len({*map(tuple, ids)}) > 120
    mask = tokenizer.token_to_id("<mask>")
    assert mask == tokenizer.get_vocab_size() - 1
    assert tokenizer.encode("a <mask>b").ids[2] == mask


def test_unigrams_of_a_decoder_are_those_of_sentencepiece(tmp_path: Path) -> None:
    """It reads no names of special tokens, and gives a text that begins with a space two."""
    tokenizer = Tokenizer(folder_tokenizer(write(tmp_path, "unigrams")), bos=1)
    compared = 0
    for text, ids in zip(texts(), recorded()["unigrams"]["ids"], strict=True):
        if not text.startswith((" ", "\u2581")):
            read = tokenizer.with_bos(tokenizer.read(text, special=False))
            assert list(read) == ids, text
            compared += 1
    assert compared > 140
    newline = tokenizer.read("\n")[-1]
    assert newline not in tokenizer.read("<0x0A>"), "the name of a byte is not a byte"


def test_a_text_begins_with_its_token_unless_the_folder_says_otherwise(tmp_path: Path) -> None:
    """As documented, and in llama.cpp; transformers 5 adds none where the key is missing."""
    before = folder_tokenizer(write(tmp_path, "llama")).encode("the dog").ids
    (tmp_path / CONFIG).write_text("{}")
    assert folder_tokenizer(tmp_path).encode("the dog").ids == before
    assert before[0] == 1


@pytest.mark.parametrize("case", ["llama added", "qwen"])
def test_a_bake_takes_the_folder(tmp_path: Path, case: str) -> None:
    weights = small_gemma(tmp_path / "weights")
    (weights / "tokenizer.json").unlink()
    write(weights, case)
    resolve(bake_options({"weights": weights}))
    read = read_tokenizer(open_weights(weights), vocab_size=1100)
    assert read.tokenizer.encode("<|im_end|>").ids[-1] in (701, 1001)
    assert [read.tokenizer.encode(text).ids for text in texts()] == recorded()[case]["ids"]


def test_a_bake_takes_a_folder_of_unigrams(tmp_path: Path) -> None:
    weights = small_gemma(tmp_path / "weights")
    (weights / "tokenizer.json").unlink()
    write(weights, "unigrams")
    resolve(bake_options({"weights": weights}))
    read = read_tokenizer(open_weights(weights), vocab_size=1100).tokenizer
    ids = read.encode("the dog caf\u00e9").ids
    assert read.decode(ids) == " the dog caf\u00e9"
    assert ids == folder_tokenizer(weights).encode("the dog caf\u00e9").ids
    encoder = write_model(tmp_path / "encoder")
    (encoder / "tokenizer.json").unlink()
    write(encoder, "xlm-roberta")
    text = text_tokenizer_json(open_weights(encoder))
    assert build(parse(text)).encode(texts()[3]).ids == recorded()["xlm-roberta"]["ids"][3]


def test_a_vocabulary_of_another_model_is_refused_by_its_folder(tmp_path: Path) -> None:
    weights = small_gemma(tmp_path / "weights")
    (weights / "tokenizer.json").unlink()
    write(weights, "llama")
    with pytest.raises(TokenizerError, match=f"^{weights}: the tokenizer reads English as the tok"):
        read_tokenizer(open_weights(weights), vocab_size=257)


def cut(folder: Path) -> None:
    data = (folder / "tokenizer.model").read_bytes()
    (folder / "tokenizer.model").write_bytes(data[:1001])


def tiktoken(folder: Path) -> None:
    """The form of Llama 3 and Qwen 1."""
    (folder / "tokenizer.model").write_text("IQ== 0\nIg== 1\n")


def words(folder: Path) -> None:
    """The field model_type of trainer_spec, at the end of the file, which counts."""
    data = (folder / "tokenizer.model").read_bytes()
    (folder / "tokenizer.model").write_bytes(data + b"\x12\x02\x18\x03")


def byte_pairs(folder: Path) -> None:
    file = folder / "sentencepiece.bpe.model"
    file.write_bytes(file.read_bytes() + b"\x12\x02\x18\x02")


def removes_spaces(folder: Path) -> None:
    data = (folder / "tokenizer.model").read_bytes()
    (folder / "tokenizer.model").write_bytes(data + b"\x1a\x02\x20\x01")


def other_id(folder: Path) -> None:
    change(folder / CONFIG, added_tokens_decoder={"5000": {"content": "<x>", "special": True}})


def without_special_tokens(folder: Path) -> None:
    """Only an early version leaves them to Mistral's package."""
    change(folder / "tekken.json", special_tokens=None)


def invalid_pattern(folder: Path) -> None:
    change(folder / "tekken.json", config={"pattern": "("})


def repeated(folder: Path) -> None:
    entries = json.loads((folder / "tekken.json").read_text())["vocab"]
    change(folder / "tekken.json", vocab=[*entries[:300], entries[0]])


def many_special_tokens(folder: Path) -> None:
    """A billion in a few bytes."""
    file = folder / "tekken.json"
    config = json.loads(file.read_text())["config"]
    change(file, config={**config, "default_num_special_tokens": 10**9})


def long_token(folder: Path) -> None:
    """Each byte could split it into two."""
    entries = json.loads((folder / "tekken.json").read_text())["vocab"]
    entry = {"token_bytes": base64.b64encode(b"a" * 100_000).decode()}
    change(folder / "tekken.json", vocab=[*entries[:300], entry])


def type_in_bytes(folder: Path) -> None:
    """The field model_type, as bytes."""
    data = (folder / "tokenizer.model").read_bytes()
    (folder / "tokenizer.model").write_bytes(data + b"\x12\x04\x1a\x02xx")


def no_content(folder: Path) -> None:
    change(folder / CONFIG, added_tokens_decoder={"5000": "<x>"})


@pytest.mark.parametrize(
    ("case", "damage", "message"),
    [
        ("llama", cut, r"tokenizer\.model is not a model of SentencePiece$"),
        ("llama", tiktoken, r"tokenizer\.model is not a model of SentencePiece$"),
        ("llama", type_in_bytes, r"tokenizer\.model is not a model of SentencePiece$"),
        ("llama", words, r"tokenizer\.model: its vocabulary is of words or characters"),
        ("xlm-roberta", byte_pairs, r"bpe\.model: got a vocabulary of BPE, expected unigrams"),
        (
            "xlm-roberta",
            lambda folder: change(folder / CONFIG, tokenizer_class="CamembertTokenizer"),
            r"json: tokenizer_class: got 'CamembertTokenizer', supported with sentencepiece\.bpe",
        ),
        ("unigrams", removes_spaces, r"tokenizer\.model: it changes characters or removes spaces"),
        ("llama", removes_spaces, r"tokenizer\.model: it changes characters or removes spaces"),
        ("llama", other_id, "the added token '<x>' has the id 5000, expected 1000"),
        ("llama", no_content, r"tokenizer_config\.json: added_tokens_decoder has '5000': '<x>'"),
        (
            "tekken",
            without_special_tokens,
            r"tekken\.json is not a tekken\.json that is supported: ",
        ),
        ("tekken", invalid_pattern, r"tekken\.json is not a tekken\.json that is supported: "),
        ("tekken", many_special_tokens, r"1000000000 special tokens, expected at most 16384"),
        ("tekken", long_token, r"a token of more than 1024 bytes"),
        ("tekken", repeated, r"tekken\.json: tokenizer\.ggml\.tokens has .* twice"),
        (
            "qwen",
            lambda folder: change(folder / CONFIG, tokenizer_class="GPT2Tokenizer"),
            r"tokenizer_config\.json: tokenizer_class: got 'GPT2Tokenizer', supported without ",
        ),
        (
            "qwen",
            lambda folder: change(folder / "vocab.json", more=5000),
            r"vocab\.json: expected the ids 0 to 700",
        ),
        (
            "qwen",
            lambda folder: (folder / "merges.txt").write_text("never seen\n"),
            r"vocab\.json: tokenizer\.ggml\.merges: 'never seen' needs the token 'never'",
        ),
        (
            "qwen",
            lambda folder: (folder / "merges.txt").write_bytes(b"\xff"),
            r"merges\.txt: it is not UTF-8 text",
        ),
        (
            "qwen",
            lambda folder: change(folder / "vocab.json", more=[]),
            r"vocab\.json: expected the ids 0 to 700",
        ),
        (
            "llama",
            lambda folder: change(
                folder / CONFIG, added_tokens_decoder={"9" * 5000: {"content": ""}}
            ),
            r"tokenizer_config\.json: added_tokens_decoder has '9{79}: ",
        ),
        (
            "llama",
            lambda folder: (folder / "added_tokens.json").write_text('{"<x>": 1000, "<y>": []}'),
            r"added_tokens\.json: '<y>': got \[\], expected an id",
        ),
    ],
)
def test_what_is_not_read_exactly_is_refused(
    tmp_path: Path, case: str, damage: Callable[[Path], object], message: str
) -> None:
    folder = write(tmp_path, case)
    damage(folder)
    with pytest.raises(TokenizerError, match=f"^(cannot read )?{tmp_path}.*{message}"):
        folder_tokenizer(folder)


@pytest.mark.parametrize("name", ["do_lower_case", "strip_accents", "tokenize_chinese_chars"])
def test_a_setting_of_bert_is_true_or_false(tmp_path: Path, name: str) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    (tmp_path / CONFIG).write_text(json.dumps({name: None}))
    assert folder_tokenizer(tmp_path).token_to_id("a") == 5
    (tmp_path / CONFIG).write_text(json.dumps({name: "no"}))
    with pytest.raises(TokenizerError, match=f"json: {name}: got 'no', expected true or false"):
        folder_tokenizer(tmp_path)
