"""The memory that a server has for experts that are larger than it, and what it logs of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hearthd.bundle import SHARED_MEMORY, Admitted
from hearthd.server.process.streamed_experts import expert_memory
from tests.bundle.example_manifests import EXAMPLE

ADMITTED = Admitted(slots=1, context=EXAMPLE.context, prefix_cache=0)
WEIGHTS = replace(EXAMPLE.footprint, read=10**9, experts=10**9, token_experts=10**8)


@pytest.mark.parametrize(
    ("speed", "spare", "text"),
    [
        (
            2e8,
            5 * 10**8,
            "up to 50.0 MB from the file, at 200.0 MB/s: expect about 4 tokens/s, and",
        ),
        (None, 5 * 10**8, "reads up to 50.0 MB from the file"),
        (2e8, 10**9, "a token reads nothing from the file"),
    ],
)
def test_the_speed_is_said(
    speed: float | None,
    spare: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("hearthd.server.process.streamed_experts.disk_speed", lambda _: speed)
    manifest = replace(EXAMPLE, footprint=WEIGHTS)
    limit = manifest.memory_of(ADMITTED.context).needed(1) - WEIGHTS.token_experts + spare
    memory = expert_memory(Path("bundle"), manifest, ADMITTED, limit)
    assert memory == spare
    assert text in caplog.text
    caplog.clear()
    assert expert_memory(Path("bundle"), EXAMPLE, ADMITTED, limit) == 0
    assert not caplog.text


def test_models_of_a_process_share_the_memory_for_experts() -> None:
    manifest = replace(EXAMPLE, footprint=WEIGHTS)
    needed = manifest.memory_of(ADMITTED.context).needed(1)
    limit = 2 * (needed + 10**8) - SHARED_MEMORY
    memory = expert_memory(Path("bundle"), manifest, ADMITTED, limit, 0, 2)
    assert memory == WEIGHTS.token_experts + 10**8
    reserved = manifest.memory_of(ADMITTED.context).unshared(1) + 10**8
    assert expert_memory(Path("bundle"), manifest, ADMITTED, limit, reserved, 2) == memory
