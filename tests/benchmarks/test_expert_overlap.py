"""The experts that neighboring tokens choose together, and how many a file's routers let them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.expert_overlap import (
    PUBLISHED,
    choices,
    distinct,
    independent,
    overlap_table,
)
from benchmarks.synthetic_shapes import SIZES
from benchmarks.synthetic_weights import main, with_layers
from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.weights.gguf import GgufSource
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.families import gemma4moe
from tests.benchmarks.test_synthetic_weights import TOKENS, write_vocabulary

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Path:
    """Two narrow layers of Gemma 4 26B-A4B, with all of its experts."""
    large = SIZES["gemma4-26b-a4b"]
    assert isinstance(large, gemma4moe.Config)
    few = with_layers(replace(large, hidden=256, expert_ffn=32, ffn=96, ffns=(96,) * 30), 2)
    monkeypatch.setattr("benchmarks.synthetic_weights.SIZES", {"few": few})
    out = folder / "few.gguf"
    main([str(write_vocabulary(folder / "vocabulary.gguf")), "few", str(out), *options])
    return out


def mean_distinct(layers: list[np.ndarray], size: int) -> float:
    return float(np.mean([distinct(text, size) for layer in layers for text in layer]))


@pytest.mark.parametrize("repeats", [False, True])
def test_neighbors_share_as_many_experts_as_published_if_the_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeats: bool
) -> None:
    source = GgufSource(write(tmp_path, monkeypatch, *["--repeat-experts"] * repeats))
    family = identify(source, None)
    assert isinstance(family.config, ExpertsConfig)
    texts = np.random.default_rng(0).integers(TOKENS, size=(4, 32), dtype=np.int32)
    found = choices(source, ARCHITECTURES[family.architecture], family.config, texts, tmp_path)
    assert [layer.shape for layer in found] == [(4, 32, 8)] * 2
    for size in (2, 4, 8):
        published = [known[size] for known in PUBLISHED.values() if size in known]
        expected = max(published) if repeats else independent(128, 8, size)
        assert mean_distinct(found, size) == pytest.approx(expected, rel=0.08)
    assert len(overlap_table(family.config, found).rows) == 3 + len(PUBLISHED)


def test_each_expert_of_a_window_counts_once() -> None:
    chosen = np.array([[0, 1], [1, 2], [1, 0], [3, 4]], np.int32)
    assert distinct(chosen, 1) == 1
    assert distinct(chosen, 2) == (3 + 3 + 4) / 3 / 2
    assert distinct(chosen, 4) == 5 / 2


def test_independent_tokens_share_few_experts() -> None:
    assert independent(128, 8, 1) == 1
    assert independent(128, 8, 4) == pytest.approx(3.64, abs=0.005)
    rng = np.random.default_rng(0)
    chosen = np.array([rng.permutation(128)[:8] for _ in range(500)], np.int32)
    assert distinct(chosen, 4) == pytest.approx(independent(128, 8, 4), rel=0.01)
