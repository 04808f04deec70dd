"""`hearth inspect` and the verdict before a download name the method of a quantized folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearthd.baker.hub.verdict import examine
from hearthd.bundle import bundle_home
from tests.baker.test_weights_page import rows
from tests.baker.weights.quantized.folders import TENSORS, write_folders
from tests.baker.weights.quantized.packing_cases import CASES
from tests.by_day import first_by_day

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("case", ["awq", "fp8_blocks"])
def test_inspect_counts_the_tensors_of_a_method(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(tmp_path / "home"))
    folders = write_folders(CASES[case], tmp_path)
    for folder in (folders.quantized, folders.plain):
        (folder / "tokenizer.json").touch()
    page, plain = rows(folders.quantized), rows(folders.plain)
    assert page["tensors"] == f"14 in {CASES[case].type}, 7 in f32"
    assert page["size"] == plain["size"]


@pytest.mark.parametrize(
    ("case", "precision"),
    first_by_day(
        [("awq", "native"), ("packed_4", "native"), ("nf4_double", "int8-g32"), ("nf4", "int8-g32")]
    ),
)
def test_the_verdict_needs_the_headers_alone(case: str, precision: str, tmp_path: Path) -> None:
    folders = write_folders(CASES[case], tmp_path)
    expected = examine(folders.quantized)
    assert expected.model == f"llama ({CASES[case].type})"
    assert expected.precision == precision
    assert examine(folders.plain).model == "llama"
    path = folders.quantized / TENSORS
    stored = path.read_bytes()
    header = 8 + int.from_bytes(stored[:8], "little")
    path.write_bytes(stored[:header].ljust(len(stored), b"\0"))
    assert examine(folders.quantized) == expected
