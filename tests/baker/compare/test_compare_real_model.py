"""The real bundles against what llama.cpp recorded on the same weights in F32, and each other."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from baker.compare.comparison import CompareOptions, compare_sides
from baker.compare.measurement.passages import recorded_passages
from baker.compare.measurement.side_by_side import compare
from baker.compare.report.summary import summarize
from baker.compare.sides.recording import read_recording
from baker.compare.sides.side import ALL, BundleSide, RecordedSide, SideDescription
from runtime.open_bundle import open_bundle
from tests.conftest import Silent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from baker.compare.measurement.side_by_side import PassageResult
    from baker.compare.sides.recording import Recording
    from runtime.interface import Runtime

GOLDEN = Path(__file__).parents[2] / "golden" / "gemma3_270m_llamacpp_f32.json"


TOKENS = 32  # of each recorded answer, to save time


def against(recording: Recording, runtime: Runtime) -> tuple[PassageResult, ...]:
    """A runtime reading the first TOKENS of a recording's answers."""
    cases = tuple(
        dataclasses.replace(case, greedy_ids=case.greedy_ids[:TOKENS], best=case.best[:TOKENS])
        for case in recording.cases
    )
    recording = dataclasses.replace(recording, cases=cases)
    recorded = SideDescription(side_type="recording", name="golden", gives="the best", details={})
    about = SideDescription(side_type="bundle", name="bundle", gives=ALL, details={})
    sides = RecordedSide(recording, recorded), BundleSide(runtime, about, None)
    return compare(*sides, recorded_passages(recording), lambda: None).passages


@pytest.mark.slow
def test_f32_gives_the_recorded_tokens_and_log_probabilities(bundles: Mapping[str, Path]) -> None:
    """Of two prompts that are longer than the sliding window, the longer one."""
    recording = read_recording(GOLDEN)
    cases = tuple(case for case in recording.cases if case.name != "fdl_690")
    runtime = open_bundle(bundles["f32"], threads=None)[1]
    readings = against(dataclasses.replace(recording, cases=cases), runtime)
    assert len(readings) == 9
    for reading in readings:
        assert reading.first_difference is None, reading.passage.name
        summary = summarize(reading.positions)
        assert summary.positions == TOKENS
        assert summary.largest_difference <= 0.02, reading.passage.name
        assert summary.mean_difference < 0.002, reading.passage.name
        assert summary.kl_max < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("logits", "least", "most"), [("exact:", 0, 2e-4), ("", 2e-4, 3.5e-3)])
def test_int8_g32_stays_within_its_kl_divergence(
    bundles: Mapping[str, Path], logits: str, least: float, most: float
) -> None:
    options = CompareOptions(
        texts=(), positions=30, answers=0, tokenizer=None, top=20, threads=None
    )
    ours = f"{logits}{bundles['int8-g32']}"
    report = compare_sides(str(bundles["f32"]), ours, options, Silent())
    assert report.exact
    assert report.texts is not None
    assert report.texts.positions == 58
    assert least < report.texts.kl_mean < most
    assert report.texts.agreement > 0.97
    assert report.texts.perplexity_a is not None
    assert 10 < report.texts.perplexity_a < 1000


@pytest.mark.slow
def test_numpy_and_the_compiled_program_agree(bundles: Mapping[str, Path]) -> None:
    options = CompareOptions(texts=(), positions=3, answers=0, tokenizer=None, top=20, threads=None)
    bundle = str(bundles["smollm2"])
    report = compare_sides(f"numpy:{bundle}", bundle, options, Silent())
    assert report.texts is not None
    assert report.texts.positions == report.texts.agree == 4
    assert report.texts.kl_max < 1e-8
    assert report.texts.largest_difference < 1e-3
