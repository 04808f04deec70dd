"""RWKV's vocabulary, from GGUF metadata and from the text file of a folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.tokenizer.folder_vocabulary import RWKV_VOCABULARY
from hearthd.baker.tokenizer.gguf_vocabulary import convert, gguf_specials
from hearthd.baker.tokenizer.tokenizer_files import chat_template, read_tokenizer
from hearthd.baker.weights.source import TokenizerError
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

LONGER = [b"ab", b"abcd", b"bc", b"'\"", b"\n\n", "é".encode(), "é".encode()[1:] + b"!"]
BYTES = [bytes([byte]) for byte in range(256)] + LONGER
NAMES = ["<s>", *(repr(token)[2:-1] for token in BYTES), "[PAD264]"]
METADATA: dict[str, Any] = {
    "tokenizer.ggml.model": "rwkv",
    "tokenizer.ggml.tokens": NAMES,
    "tokenizer.ggml.token_type": [3] + [1] * len(BYTES) + [5],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.ggml.eot_token_id": 1 + BYTES.index(b"\n\n"),
}  # fmt: skip


def read(text: str) -> list[bytes]:
    return [BYTES[id_ - 1] for id_ in convert(METADATA).encode(text).ids]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("abcabcd", [b"ab", b"c", b"abcd"]),
        ("abc", [b"ab", b"c"]),
        ("xbc'\"\n\n\n", [b"x", b"bc", b"'\"", b"\n\n", b"\n"]),
        ("é!\0\\", ["é".encode(), b"!", b"\0", b"\\"]),
    ],
)
def test_a_text_is_read_as_the_longest_tokens_that_it_begins_with(
    text: str, tokens: list[bytes]
) -> None:
    assert read(text) == tokens
    assert convert(METADATA).decode(convert(METADATA).encode(text).ids) == text


def test_a_token_has_its_bytes_and_the_special_one_its_name() -> None:
    tokenizer = Tokenizer(convert(METADATA), bos=None)
    assert [tokenizer.bytes_of(1 + id_) for id_ in range(len(BYTES))] == BYTES
    assert tokenizer.read("a<s>b") == (1 + ord("a"), 0, 1 + ord("b"))
    assert len(tokenizer.read("a<s>b", special=False)) == 5
    specials = gguf_specials(METADATA)
    assert (specials.bos, specials.named_bos, specials.eos) == (None, 0, [0, 261])


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([*NAMES[:66], "A\\x41", *NAMES[67:]], "has no token for the byte 65$"),
        ([*NAMES[:-1], "\\x61b"], "has the bytes of a token twice$"),
        ([*NAMES[:-1], "a" * 257], "has a token of 257 bytes, expected 1 to 256$"),
        ([*NAMES[:-1], ""], "has a token of 0 bytes, expected 1 to 256$"),
    ],
)
def test_vocabularies_that_cannot_be_read_so_are_refused(tokens: list[str], message: str) -> None:
    types = [3] + [1] * (len(tokens) - 1)
    changes = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    with pytest.raises(TokenizerError, match=rf"^tokenizer\.ggml\.tokens {message}"):
        convert({**METADATA, **changes})


class Source:
    """Weights in a folder, or in a GGUF file with a chat template."""

    def __init__(self, folder: Path | None = None, template: str = "") -> None:
        self.folder = self.path = folder
        self.template = template

    def metadata(self) -> dict[str, Any]:
        return {"tokenizer.chat_template": self.template}


def write_folder(folder: Path, lines: list[str]) -> Any:
    (folder / RWKV_VOCABULARY).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    config = {"added_tokens_decoder": {"0": {"content": "<|end|>", "special": True}}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "config.json").write_text('{"eos_token_id": 0}', encoding="utf-8")
    return Source(folder)


LINES = [
    f"{id_} {token.decode()!r} {len(token)}" if token.isascii() else f"{id_} {token!r} {len(token)}"
    for id_, token in enumerate(BYTES, 1)
]


def test_a_folder_has_the_vocabulary_as_text(tmp_path: Path) -> None:
    tokenizer = read_tokenizer(write_folder(tmp_path, LINES), vocab_size=300)
    assert tokenizer.special.eos == (0, 261)  # a blank line ends a turn, as in llama.cpp
    library = tokenizer.tokenizer
    assert library.encode("abcabcd é!").ids == convert(METADATA).encode("abcabcd é!").ids
    assert library.encode("<|end|>").ids == [0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("264 'a 1", "is not an id, a token and its size$"),
        ("264 'ax' 1", "expected token 264 of 2 bytes$"),
        ("265 'ax' 2", "expected token 264 of 2 bytes$"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    source = write_folder(tmp_path, [*LINES, line])
    with pytest.raises(TokenizerError, match=message):
        read_tokenizer(source, vocab_size=300)


def test_the_name_of_a_chat_template_stands_for_it() -> None:
    """Files of RWKV of 2025 have the name that llama.cpp knows its template by."""
    source: Any = Source(template="rwkv-world")
    assert "Assistant:" in str(chat_template(source))
