"""Tokenizers: GGUF vocabularies, against recorded ids of Gemma 3's own tokenizer.json."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import gguf
import numpy as np
import pytest
from gguf import TokenType
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from hearthd.baker.tokenizer.gguf_vocabulary import merges_of
from hearthd.baker.tokenizer.tokenizer_files import chat_template, special_tokens, tokenizer_json
from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.baker.weights.source import TokenizerError
from hearthd.bundle import TOKENIZER, LanguageManifest, SpecialTokens, read_manifest_of
from tests.conftest import packaged

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Bundles

GOLDEN = Path(__file__).parents[2] / "golden" / "tokenizer_gemma3.json"

# A vocabulary of Gemma's kind. Scores of user-defined tokens are what GGUF files have.
SPECIALS = ["<pad>", "<eos>", "<bos>", "<unk>", "<end_of_turn>"]
USER_DEFINED = ["  ", "   ", "\n\n"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
NORMAL = ["▁t", "he", "▁the", "the", "▁", "t", "h", "e", "\n", "é", "日"]
# "tt" could be merged from "t" and "t", but is not in use.
UNUSED = ["tt"]
TOKENS = [*SPECIALS, *USER_DEFINED, *BYTES, *UNUSED, *NORMAL]
TYPES = (
    [TokenType.CONTROL] * len(SPECIALS)
    + [TokenType.USER_DEFINED] * len(USER_DEFINED)
    + [TokenType.BYTE] * len(BYTES)
    + [TokenType.UNUSED] * len(UNUSED)
    + [TokenType.NORMAL] * len(NORMAL)
)
SCORES = [-1000.0] * (len(TOKENS) - len(NORMAL)) + [-float(i) for i in range(len(NORMAL))]
TEMPLATE = "<start_of_turn>{{ messages[0].content }}<end_of_turn>"


def write_gguf(path: Path, change: Callable[[gguf.GGUFWriter], object] | None = None) -> GgufSource:
    """The vocabulary above, with keys added or replaced by `change`."""
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_types(TYPES)
    writer.add_token_scores(SCORES)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    if change:
        # The writer refuses a key twice.
        keys = writer.kv_data[0]
        writer.kv_data[0] = {}
        change(writer)
        writer.kv_data[0] = keys | writer.kv_data[0]
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufSource(path)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    source = write_gguf(tmp_path_factory.mktemp("small") / "model.gguf")
    return Tokenizer.from_str(tokenizer_json(source))


def test_merges_are_every_split_in_order() -> None:
    tokens = [token.replace(" ", "▁") for token in TOKENS]
    assert merges_of(tokens, [int(type_) for type_ in TYPES], SCORES) == [
        # User-defined first, the longest left part first; a space is its sign.
        ("▁▁", "▁"),
        ("▁", "▁▁"),
        ("▁", "▁"),
        ("\n", "\n"),
        # Then by score; "▁the" has two splits.
        ("▁", "t"),
        ("h", "e"),
        ("▁t", "he"),
        ("▁", "the"),
        ("t", "he"),
    ]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("the the", ["the", "▁the"]),
        ("    t", ["▁▁▁", "▁t"]),
        ("\n\n\n", ["\n\n", "\n"]),
        ("<bos>é<end_of_turn>", ["<bos>", "é", "<end_of_turn>"]),
        ("ü日", ["<0xC3>", "<0xBC>", "日"]),
        ("\x00", ["<0x00>"]),
    ],
)
def test_text_has_the_expected_tokens(small: Tokenizer, text: str, tokens: list[str]) -> None:
    assert small.encode(text).tokens == ["<bos>", *tokens]
    assert small.encode(text, add_special_tokens=False).tokens == tokens


@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁")))
def test_decoding_gives_the_text_back(small: Tokenizer, text: str) -> None:
    ids = small.encode(text, add_special_tokens=False).ids
    assert small.decode(ids, skip_special_tokens=False) == text


def test_control_tokens_are_special_and_user_defined_are_not(small: Tokenizer) -> None:
    added = small.get_added_tokens_decoder()
    assert [added[i].content for i in sorted(added) if added[i].special] == SPECIALS
    assert [added[i].content for i in sorted(added) if not added[i].special] == [
        "▁▁",
        "▁▁▁",
        "\n\n",
    ]
    assert small.get_vocab_size() == len(TOKENS)


def test_bos_is_omitted_if_the_file_says_so(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "a.gguf", lambda writer: writer.add_add_bos_token(False))
    assert Tokenizer.from_str(tokenizer_json(source)).encode("the").tokens == ["the"]
    assert special_tokens(source) == SpecialTokens(bos=None, eos=(1,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: w.add_tokenizer_model("bert"),
            "'bert' is not supported, only 'llama', 'gpt2', 'gemma4'",
        ),
        (
            lambda w: w.add_tokenizer_model("gpt2"),
            r"ggml\.merges is missing; convert the model again",
        ),
        (lambda w: w.add_add_eos_token(True), "add_eos_token = true"),
        (lambda w: w.add_token_scores([1.0]), f"{len(TOKENS)} tokens but 1 scores"),
        (lambda w: w.add_bos_token_id(9999), f"bos_token_id is 9999, but there are {len(TOKENS)}"),
        (lambda w: w.add_string("tokenizer.ggml.unknown_token_id", "x"), "'x', expected .* int"),
        (lambda w: w.add_token_list(["a", *TOKENS[:-2], "a"]), "has 'a' twice"),
    ],
)
def test_an_unsupported_vocabulary_is_rejected(
    tmp_path: Path, change: Callable[[gguf.GGUFWriter], object], message: str
) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer_json(write_gguf(tmp_path / "a.gguf", change))


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "gemma3")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(TokenizerError, match=r"ggml\.model is missing; convert the model again"):
        tokenizer_json(GgufSource(tmp_path / "a.gguf"))


def test_special_tokens_come_from_gguf_metadata(tmp_path: Path) -> None:
    base = write_gguf(tmp_path / "base.gguf")
    assert special_tokens(base) == SpecialTokens(bos=2, eos=(1,))
    assert chat_template(base) is None
    instruct = write_gguf(tmp_path / "it.gguf", lambda writer: writer.add_chat_template(TEMPLATE))
    assert special_tokens(instruct) == SpecialTokens(bos=2, eos=(1, 4))
    assert chat_template(instruct) == TEMPLATE
    turn = write_gguf(tmp_path / "turn.gguf", lambda writer: writer.add_eot_token_id(0))
    assert special_tokens(turn) == SpecialTokens(bos=2, eos=(1, 0))


def write_folder(folder: Path, tokenizer: str, **files: Any) -> SafetensorsSource:
    save_file({"a": np.ones(1, np.float32)}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(tokenizer)
    for name, content in ({"config": {}} | files).items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return SafetensorsSource(folder)


def test_a_folder_keeps_its_tokenizer(tmp_path: Path, small: Tokenizer) -> None:
    source = write_folder(tmp_path, small.to_str(), config={"eos_token_id": 1})
    assert tokenizer_json(source) == small.to_str()


@pytest.mark.parametrize("text", ["", "{}", '{"model": 3}'])
def test_a_corrupt_tokenizer_of_a_folder_is_rejected(tmp_path: Path, text: str) -> None:
    source = write_folder(tmp_path, text)
    for read in (tokenizer_json, special_tokens):
        with pytest.raises(TokenizerError, match=r"tokenizer\.json is not a valid tokenizer: "):
            read(source)


def test_a_pointer_in_place_of_a_tokenizer_says_how_to_get_it(tmp_path: Path) -> None:
    source = write_folder(tmp_path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(TokenizerError, match=r"it is a Git LFS pointer, .*; run `git lfs pull`$"):
        tokenizer_json(source)


def test_a_template_with_an_end_of_turns_has_one_of_messages_too(
    tmp_path: Path, small: Tokenizer
) -> None:
    """gpt-oss: <|end|> ends the reasoning, and <|return|> and <|call|> an answer."""
    small = Tokenizer.from_str(small.to_str())
    small.add_special_tokens(["<|end|>", "<|return|>", "<|call|>"])
    end, turn_end, call = map(small.token_to_id, ("<|end|>", "<|return|>", "<|call|>"))
    template = "{{ '<|end|>' }}"
    for text, expected in (
        (template, (1, end)),
        (f"{template}<|return|><|call|>", (1, turn_end, call)),
    ):
        files = {"config": {"eos_token_id": [1, end]}, "tokenizer_config": {"chat_template": text}}
        assert special_tokens(write_folder(tmp_path, small.to_str(), **files)).eos == expected


def test_a_text_in_a_gap_ends_before_the_next_file(tmp_path: Path, small: Tokenizer) -> None:
    """As in llama.cpp, whose answers end at these tokens whatever a file lists."""
    small = Tokenizer.from_str(small.to_str())
    ends = ["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"]
    small.add_special_tokens(["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", *ends])
    read = special_tokens(write_folder(tmp_path, small.to_str(), config={"eos_token_id": 1}))
    assert read.eos == (1, *map(small.token_to_id, ends))


def test_a_folder_without_a_tokenizer_is_rejected(tmp_path: Path) -> None:
    source = write_folder(tmp_path, "")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match=r"has no tokenizer\.json"):
        tokenizer_json(source)


BY_NAME = {"bos_token": "<bos>", "eos_token": {"content": "<eos>"}}


@pytest.mark.parametrize(
    ("files", "bos", "eos"),
    [
        ({"config": {"bos_token_id": 2, "eos_token_id": 1}}, 2, (1,)),
        ({"config": {"bos_token_id": 2, "eos_token_id": [1, 4]}}, 2, (1, 4)),
        ({"config": {"text_config": {"bos_token_id": 2, "eos_token_id": 1}}}, 2, (1,)),
        ({"tokenizer_config": BY_NAME}, 2, (1,)),
        # As in transformers 5, only the post-processor of tokenizer.json adds a token.
        ({"tokenizer_config": BY_NAME | {"add_bos_token": False}}, 2, (1,)),
        ({"tokenizer_config": {"eos_token": "<eos>"}}, 2, (1,)),
        # generation_config.json knows better than config.json, as in `transformers`.
        (
            {
                "config": {"bos_token_id": 2, "eos_token_id": 1},
                "generation_config": {"eos_token_id": [1, 4]},
            },
            2,
            (1, 4),
        ),
        # A chat template that ends turns with <end_of_turn> makes it an eos, once.
        (
            {"config": {"eos_token_id": 1}, "tokenizer_config": {"chat_template": TEMPLATE}},
            2,
            (1, 4),
        ),
        (
            {"config": {"eos_token_id": [4, 1]}, "tokenizer_config": {"chat_template": TEMPLATE}},
            2,
            (4, 1),
        ),
    ],
)
def test_special_tokens_come_from_a_folder(
    tmp_path: Path, small: Tokenizer, files: dict[str, Any], bos: int | None, eos: tuple[int, ...]
) -> None:
    source = write_folder(tmp_path, small.to_str(), **files)
    assert special_tokens(source) == SpecialTokens(bos=bos, eos=eos)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "have no eos token"),
        ({"config": {"eos_token_id": len(TOKENS)}}, f"token {len(TOKENS)} is outside"),
        ({"config": {"eos_token_id": [1, -1]}}, "token -1 is outside"),
    ],
)
def test_invalid_special_tokens_of_a_folder_are_rejected(
    tmp_path: Path, small: Tokenizer, files: dict[str, Any], message: str
) -> None:
    with pytest.raises(TokenizerError, match=message):
        special_tokens(write_folder(tmp_path, small.to_str(), **files))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (TEMPLATE, TEMPLATE),
        ([{"name": "tools", "template": "x"}, {"name": "default", "template": "y"}], "y"),
        (None, None),
    ],
)
def test_the_chat_template_comes_from_a_folder(
    tmp_path: Path, small: Tokenizer, template: Any, expected: str | None
) -> None:
    config = {"chat_template": template}
    source = write_folder(tmp_path, small.to_str(), tokenizer_config=config)
    assert chat_template(source) == expected
    (tmp_path / "chat_template.jinja").write_text("from the file")
    assert chat_template(source) == "from the file"


@pytest.fixture(scope="module")
def gemma(bundles: Bundles) -> Tokenizer:
    return Tokenizer.from_file(str(bundles["gemma3"] / TOKENIZER))


@pytest.mark.nightly
@pytest.mark.slow
def test_gemma_gives_the_recorded_ids(gemma: Tokenizer) -> None:
    cases = json.loads(GOLDEN.read_text())["cases"]
    assert len(cases) >= 200
    for case in cases:
        assert gemma.encode(case["text"]).ids == case["ids"], repr(case["text"])


@pytest.mark.nightly
@pytest.mark.slow
def test_gemma_gives_the_recorded_model(gemma: Tokenizer) -> None:
    """The recorded one has all merges."""
    parts = json.loads(gemma.to_str())
    metadata = packaged("gemma3").metadata()
    names = ("tokens", "token_type", "scores")
    tokens, types, scores = (cast("list[Any]", metadata[f"tokenizer.ggml.{n}"]) for n in names)
    merges = merges_of([token.replace(" ", "▁") for token in tokens], types, scores)
    assert len(parts["model"]["merges"]) < 0.5 * len(merges)
    for part, value in (("vocab", parts["model"]["vocab"]), ("merges", merges)):
        text = json.dumps(value, sort_keys=True)
        parts["model"][part] = hashlib.sha256(text.encode()).hexdigest()
    # Which added tokens count as special is where the two files differ, and the recorded one splits
    # at spaces, which its normalizer has replaced.
    del parts["added_tokens"]
    recorded = json.loads(GOLDEN.read_text())["tokenizer"]
    assert recorded["normalizer"]["pattern"] == recorded["pre_tokenizer"]["pattern"]
    assert parts == recorded | {"pre_tokenizer": None}


@pytest.mark.nightly
@pytest.mark.slow
def test_gemma_has_its_special_tokens(gemma: Tokenizer, bundles: Bundles) -> None:
    manifest = read_manifest_of(bundles["gemma3"], LanguageManifest)
    assert manifest.special_tokens == SpecialTokens(bos=2, eos=(1,))
    assert gemma.get_vocab_size() == 262144


@pytest.mark.nightly
@pytest.mark.slow
@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁")))
def test_gemma_gives_text_back(gemma: Tokenizer, text: str) -> None:
    ids = gemma.encode(text, add_special_tokens=False).ids
    assert gemma.decode(ids, skip_special_tokens=False) == text


def test_a_space_prefix_starts_each_text(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", lambda w: w.add_add_space_prefix(True))
    tokenizer = Tokenizer.from_str(tokenizer_json(source))
    assert tokenizer.encode("the", add_special_tokens=False).tokens == ["\u2581the"]
    assert tokenizer.decode(tokenizer.encode("the the").ids) == " the the"


def test_a_folder_s_decoder_keeps_spaces_between_pieces(small: Tokenizer, tmp_path: Path) -> None:
    whole = json.loads(small.to_str())
    whole["decoder"]["decoders"].append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    tokenizer = Tokenizer.from_str(tokenizer_json(SafetensorsSource(tmp_path)))
    (the,) = tokenizer.encode(" the", add_special_tokens=False).ids
    assert tokenizer.decode([the]) + tokenizer.decode([the]) == " the the"
