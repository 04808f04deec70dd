"""Real models against what llama.cpp recorded on the same weights in F32, and each other."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hearthd.baker.compare.comparison import CompareOptions, compare_sides
from hearthd.baker.compare.measurement.passages import (
    recorded_passages,
    shipped_texts,
    text_passage,
)
from hearthd.baker.compare.measurement.side_by_side import compare
from hearthd.baker.compare.report.summary import summarize
from hearthd.baker.compare.sides.recording import read_recording
from hearthd.baker.compare.sides.side import ALL, BundleSide, RecordedSide, SideDescription
from hearthd.baker.compare.sides.vocabulary import BundleVocabulary
from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.reference.numpy_runtime import NumpyRuntime, stored_parameters
from hearthd.bundle import PARAMETERS
from hearthd.models.families.gemma3 import ARCHITECTURE
from hearthd.models.program import ProgramOptions
from hearthd.runtime.open_bundle import open_bundle
from tests.conftest import Silent, packaged
from tests.models.presets import GEMMA3

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.baker.compare.measurement.side_by_side import PassageResult
    from hearthd.baker.compare.sides.recording import Recording
    from hearthd.runtime.interface import Verifier

GOLDEN = Path(__file__).parents[2] / "golden" / "gemma3_270m_llamacpp_f32.json"


TOKENS = 16  # of each recorded answer, to save time
BUNDLE = SideDescription(side_type="bundle", name="bundle", gives=ALL, details={})
NUMPY = SideDescription(side_type="numpy", name="numpy", gives=ALL, details={})


def against(recording: Recording, runtime: Verifier) -> tuple[PassageResult, ...]:
    """A runtime reading the first TOKENS of a recording's answers."""
    cases = tuple(
        dataclasses.replace(case, greedy_ids=case.greedy_ids[:TOKENS], best=case.best[:TOKENS])
        for case in recording.cases
    )
    recording = dataclasses.replace(recording, cases=cases)
    recorded = SideDescription(side_type="recording", name="golden", gives="the best", details={})
    sides = RecordedSide(recording, recorded), BundleSide(runtime, BUNDLE, None)
    return compare(*sides, recorded_passages(recording), lambda: None).passages


@pytest.fixture(scope="module")
def f32(tmp_path_factory: pytest.TempPathFactory) -> NumpyRuntime:
    """Gemma's program in F32, computed by NumPy: to compile it takes longer."""
    source, config = packaged("gemma3"), GEMMA3["270m"]
    options = ProgramOptions(
        context=700, precision="f32", prefill_tokens=(128,), decode_batches=(1,), verify_tokens=(8,)
    )
    program = ARCHITECTURE.program(config, options)
    archive = tmp_path_factory.mktemp("f32") / PARAMETERS
    write_parameters(source, locate(source, ARCHITECTURE, config, program), archive, lambda _: None)
    weights = stored_parameters(program.parameters, archive)
    return NumpyRuntime(program, weights, context=options.context, slots=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("longest", "count"), [(10, 3), pytest.param(700, 9, marks=pytest.mark.nightly)]
)
@pytest.mark.nightly
def test_f32_gives_the_recorded_tokens_and_log_probabilities(
    f32: NumpyRuntime, longest: int, count: int
) -> None:
    """With those up to 700 also of prompts that are longer than the sliding window."""
    recording = read_recording(GOLDEN)
    cases = tuple(case for case in recording.cases if len(case.prompt_ids) <= longest)
    readings = against(dataclasses.replace(recording, cases=cases), f32)
    assert len(readings) == count
    for reading in readings:
        assert reading.first_difference is None, reading.passage.name
        summary = summarize(reading.positions)
        assert summary.positions == TOKENS
        assert summary.largest_difference <= 0.02, reading.passage.name
        assert summary.mean_difference < 0.002, reading.passage.name
        assert summary.kl_max < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("exact", "least", "most"), [(True, 0, 2e-4), (False, 2e-4, 3.5e-3)])
@pytest.mark.nightly
def test_int8_g32_stays_within_its_kl_divergence(
    bundles: Mapping[str, Path], f32: NumpyRuntime, exact: bool, least: float, most: float
) -> None:
    bundle = bundles["gemma3"]
    vocabulary = BundleVocabulary.of(bundle)
    assert vocabulary is not None
    texts = shipped_texts().items()
    passages = [text_passage(name, text, vocabulary, 30) for name, text in texts]
    int8 = BundleSide(open_bundle(bundle, threads=None)[1], BUNDLE, vocabulary, exact=exact)
    results = compare(BundleSide(f32, NUMPY, vocabulary), int8, passages, lambda: None).passages
    summary = summarize([position for result in results for position in result.positions])
    assert summary.positions == 58
    assert least < summary.kl_mean < most
    assert summary.agreement > 0.97
    assert summary.perplexity_a is not None
    assert 10 < summary.perplexity_a < 1000


@pytest.mark.slow
@pytest.mark.nightly
def test_numpy_and_the_compiled_program_agree(bundles: Mapping[str, Path]) -> None:
    options = CompareOptions(texts=(), positions=3, answers=0, tokenizer=None, top=20, threads=None)
    bundle = str(bundles["smollm2-f32"])
    report = compare_sides(f"numpy:{bundle}", bundle, options, Silent())
    assert report.texts is not None
    assert report.texts.positions == report.texts.agree == 4
    assert report.texts.kl_max < 1e-8
    assert report.texts.largest_difference < 1e-3
