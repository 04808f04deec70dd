"""`hearth inspect` and the verdict before a download name the method of a quantized folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer, decoders, models

from hearthd.baker.hub.verdict import examine
from hearthd.bundle import bundle_home
from tests.baker.test_weights_page import rows
from tests.baker.weights.quantized.folders import TENSORS, Folders, write_folders
from tests.baker.weights.quantized.packing_cases import CASES

if TYPE_CHECKING:
    from pathlib import Path


def with_tokenizers(folders: Folders) -> Folders:
    """Give both folders a token for each of 95 characters, and one that ends a text."""
    vocabulary = {chr(code): code - 32 for code in range(32, 127)} | {"<eos>": 95}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<eos>"])
    for folder in (folders.quantized, folders.plain):
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text('{"eos_token": "<eos>"}')
    return folders


@pytest.mark.parametrize("case", ["awq", "fp8_blocks"])
def test_inspect_counts_the_tensors_of_a_method(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(tmp_path / "home"))
    folders = with_tokenizers(write_folders(CASES[case], tmp_path))
    page, plain = rows(folders.quantized), rows(folders.plain)
    assert page["tensors"] == f"14 in {CASES[case].type}, 7 in f32"
    assert page["size"] == plain["size"]


@pytest.mark.parametrize(
    ("case", "precision"),
    [("awq", "native"), ("packed_4", "native"), ("nf4_double", "int8-g32"), ("nf4", "int8-g32")],
)
def test_the_verdict_needs_the_headers_alone(case: str, precision: str, tmp_path: Path) -> None:
    folders = with_tokenizers(write_folders(CASES[case], tmp_path))
    expected = examine(folders.quantized)
    assert expected.model == f"llama ({CASES[case].type})"
    assert expected.precision == precision
    assert examine(folders.plain).model == "llama"
    path = folders.quantized / TENSORS
    stored = path.read_bytes()
    header = 8 + int.from_bytes(stored[:8], "little")
    path.write_bytes(stored[:header].ljust(len(stored), b"\0"))
    assert examine(folders.quantized) == expected
