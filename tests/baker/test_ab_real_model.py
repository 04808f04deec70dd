"""The real bundles against what llama.cpp recorded on the same weights in F32."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from baker.ab.compare import TOLERANCES, failures
from baker.ab.recording import read_recording
from baker.ab.trial import run
from server.runtime.load import open_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from baker.ab.compare import CaseResult

GOLDEN = Path(__file__).parents[1] / "golden" / "gemma3_270m_llamacpp_f32.json"


def compare(bundle: Path) -> tuple[CaseResult, ...]:
    recording = read_recording(GOLDEN)
    _, runtime = open_bundle(bundle, threads=None)
    return tuple(run(runtime, None, recording, 0, lambda _: None))


@pytest.mark.slow
def test_f32_gives_every_token_and_its_log_probability(bundles: Mapping[str, Path]) -> None:
    results = compare(bundles["f32"])
    assert len(results) == 10
    assert max(result.prompt_tokens for result in results) == 1355
    for result in results:
        assert result.equal == result.common_prefix == 64, result
        assert result.spread.largest <= 0.02, result
        assert result.spread.mean < 0.002, result
    assert failures(results, TOLERANCES["f32"]) == ()


@pytest.mark.slow
def test_bf16_is_close_and_mostly_gives_the_same_answers(bundles: Mapping[str, Path]) -> None:
    results = compare(bundles["bf16"])
    assert max(result.spread.largest for result in results) <= 0.15
    assert sum(result.common_prefix == 64 for result in results) >= 7
    assert failures(results, TOLERANCES["bf16"]) == ()
