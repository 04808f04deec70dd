"""A tokenizer is read once; whatever decides what it becomes makes it another one."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from examples.train_tiny_gemma import CONFIG
from hearthd.baker.tokenizer import tokenizer_cache
from hearthd.baker.tokenizer.tokenizer_cache import TokenizerCache, source_digest
from hearthd.baker.tokenizer.tokenizer_files import FOLDER_FILES, read_tokenizer
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import TokenizerError
from tests.baker.small_gemma import small_gemma

if TYPE_CHECKING:
    from pathlib import Path

SIZE = CONFIG.vocab_size


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the vocabularies of tokenizers that were read and not found."""
    sizes: list[int] = []

    def read(source: Any, *, vocab_size: int) -> Any:
        sizes.append(vocab_size)
        return read_tokenizer(source, vocab_size=vocab_size)

    monkeypatch.setattr(tokenizer_cache, "read_tokenizer", read)
    return sizes


def test_a_kept_tokenizer_is_the_one_that_was_read(tmp_path: Path, reads: list[int]) -> None:
    folder = small_gemma(tmp_path / "weights")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    cache, source = TokenizerCache(tmp_path / "kept"), open_weights(folder)
    first, again = (cache.read(source, vocab_size=SIZE) for _ in range(2))
    assert reads == [SIZE]
    assert (again.text, again.special, again.template) == (
        first.text,
        first.special,
        first.template,
    )
    assert again.tokenizer.encode("a b").ids == first.tokenizer.encode("a b").ids
    (kept,) = (tmp_path / "kept").glob("*.txt")
    kept.write_bytes(kept.read_bytes()[:-1])
    assert cache.read(source, vocab_size=SIZE).text == first.text
    assert len(reads) == 2


def test_a_tokenizer_that_is_refused_is_not_kept(tmp_path: Path) -> None:
    folder = small_gemma(tmp_path / "weights")
    cache, source = TokenizerCache(tmp_path / "kept"), open_weights(folder)
    cache.read(source, vocab_size=SIZE)
    for _ in range(2):
        with pytest.raises(TokenizerError, match=r"expected (some|one) of the model's 2"):
            cache.read(source, vocab_size=2)


def test_each_file_of_a_folder_decides(tmp_path: Path) -> None:
    source: Any = SimpleNamespace(folder=tmp_path)
    digests = {source_digest(source, 8), source_digest(source, 9)}
    for name in FOLDER_FILES:
        (tmp_path / name).write_text("{}")
        digests.add(source_digest(source, 8))
    assert len(digests) == len(FOLDER_FILES) + 2


def test_the_vocabulary_of_a_gguf_file_decides_and_its_name_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "general.name": "a",
        "tokenizer.ggml.tokens": ["a", "b"],
        "tokenizer.chat_template": "x",
    }
    source: Any = SimpleNamespace(folder=None, metadata=lambda: metadata)
    digest = source_digest(source, 8)
    metadata["general.name"] = "a fine-tuned one"
    assert source_digest(source, 8) == digest
    for key, value in (
        ("tokenizer.ggml.tokens", ["a", "c"]),
        ("tokenizer.chat_template", "y"),
        ("tokenizer.ggml.add_bos_token", True),
        ("llama.pooling_type", 3),
    ):
        before = json.dumps(metadata)
        metadata[key] = value
        assert source_digest(source, 8) != digest
        metadata = json.loads(before)
    monkeypatch.setattr(tokenizer_cache, "_code", lambda: "changed")
    assert source_digest(source, 8) != digest
