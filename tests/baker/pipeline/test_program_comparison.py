"""The comparison of a program with golden values, with enough memory for the weights or not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typing_extensions import override

from hearthd.baker.pipeline.stages.program_comparison import compare_program
from hearthd.bundle import Golden, GoldenStep
from hearthd.runtime.iree.device import Device
from tests.conftest import Silent
from tests.server import tiny

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.bundle import LanguageManifest


class Notes(Silent):
    """Keeps notes."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @override
    def note(self, text: str) -> None:
        self.texts.append(text)


def golden(prompt: tuple[int, ...], error: float) -> Golden:
    """Golden values of a prompt and two tokens; all logits differ by an error."""
    steps, tokens = [], list(prompt)
    for _ in range(3):
        logits = tiny.expected(tokens)
        best = np.argsort(-logits)
        tokens.append(int(best[0]))
        steps.append(
            GoldenStep(
                token_ids=tuple(best.tolist()), logits=tuple((logits[best] + error).tolist())
            )
        )
    return Golden(prompt="", prompt_ids=prompt, steps=tuple(steps))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles") / "tiny"


@pytest.fixture(scope="module")
def manifest(bundle: Path) -> LanguageManifest:
    """The manifest of a bundle with two golden prompts; the second one has a wrong logit."""
    return replace(tiny.write_bundle(bundle), golden=(golden((1, 2, 3), 0), golden((4, 5), 1)))


def test_the_first_prompt_is_compared_where_the_weights_exceed_the_memory(
    bundle: Path, manifest: LanguageManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes()
    calls: list[str] = []
    huge: list[Any] = []
    module = "hearthd.baker.pipeline.stages.program_comparison"
    call = Device.call

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append("call")
        return call(*arguments, **named)

    monkeypatch.setattr(Device, "call", counted)
    monkeypatch.setattr("hearthd.runtime.iree.device.prefer_huge_pages", huge.append)
    program = manifest.programs[0]

    def compare(memory: int) -> Any:
        monkeypatch.setattr(f"{module}.available_memory", lambda: memory)
        calls.clear()
        return compare_program(bundle, manifest, program, notes)

    verdict = compare(1 << 40)
    assert not verdict.passed
    assert not notes.texts
    assert huge
    huge.clear()
    monkeypatch.setattr(f"{module}.disk_speed", lambda _: 4096 / 60)
    assert compare(10**6).passed
    assert not huge
    (text,) = notes.texts
    assert "do not fit into 1.0 MB of memory: model.vmfb is compared for the first gold" in text
    assert text.endswith(f" in {len(calls)}.0 minutes")  # one for each call that reads 4 KiB
