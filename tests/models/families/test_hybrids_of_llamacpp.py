"""Hybrids predict what llama.cpp predicts with the same GGUF files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.baker.weights.open_weights import open_weights
from tests.by_day import first_by_day
from tests.models.families import ours
from tests.models.families.hybrid_models import (
    CONFIGS,
    LLAMACPP,
    READ_BY_LLAMACPP,
    TEXT,
    write_hybrid_gguf,
)

if TYPE_CHECKING:
    from pathlib import Path

_BY_DAY = ("qwen35", ours.CHUNK)
_OTHERS = [(name, len(TEXT)) for name in CONFIGS]


@pytest.mark.parametrize(("name", "read"), first_by_day([_BY_DAY, *_OTHERS]))
def test_logits_are_those_of_llamacpp(name: str, read: int, tmp_path: Path) -> None:
    source = open_weights(write_hybrid_gguf(tmp_path / "model", name))
    rows = ours.logits(source, name, tmp_path, TEXT[:read]).astype(np.float64)
    recorded = json.loads(LLAMACPP.read_text(encoding="utf-8"))[name]
    compared = [pair for pair in zip(READ_BY_LLAMACPP, recorded, strict=True) if pair[0] <= read]
    assert compared
    for count, best in compared:
        row = rows[count - 1]
        logprobs = row - row.max() - np.log(np.exp(row - row.max()).sum())
        tokens, expected = zip(*best, strict=True)
        assert tuple(np.argsort(-row)[: len(tokens)]) == tokens
        np.testing.assert_allclose(logprobs[list(tokens)], expected, atol=2e-4)
