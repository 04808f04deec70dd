"""Prompts to fill a gap, with the vocabularies and the prompts of Mistral's package."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.tokenizer.folder_vocabulary import folder_tokenizer
from hearthd.text.infill import infill_prompt
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping

GOLDEN = Path(__file__).parents[1] / "golden" / "fim_prompts.json"
RECORDED: Mapping[str, Any] = json.loads(GOLDEN.read_text("utf-8"))


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: case["file"])
def test_a_gap_is_written_as_in_mistral_common(case: Mapping[str, Any], tmp_path: Path) -> None:
    (tmp_path / case["file"]).write_bytes(base64.b64decode(case["data"]))
    tokenizer = Tokenizer(folder_tokenizer(tmp_path), bos=1)
    prompts = [
        list(infill_prompt(tokenizer, before, after, [])) for before, after in RECORDED["gaps"]
    ]
    assert prompts == case["prompts"]
