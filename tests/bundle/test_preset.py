"""The settings of requests in a manifest."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hearthd.bundle import NotABundle, Preset, parse_manifest
from tests.bundle.example_manifests import EXAMPLE, PRESET


@pytest.mark.parametrize("preset", [PRESET, Preset(system="S")])
def test_a_preset_is_read_as_it_was_written(preset: Preset) -> None:
    manifest = replace(EXAMPLE, preset=preset)
    assert parse_manifest(manifest.to_json()) == manifest


@pytest.mark.parametrize(
    "preset",
    [
        {"max_tokens": 0},
        {"context": -1},
        {"stop": [""]},
        {"stop": ["x" * 257]},
        {"stop": ["x"] * 17},
        {"messages": [{"role": "tool", "content": ""}]},
        {"sampling": {"top_k": "x"}},
        {"unknown": 1},
    ],
)
def test_a_preset_that_no_request_could_have_is_refused(preset: dict[str, Any]) -> None:
    data = json.loads(EXAMPLE.to_json())
    with pytest.raises(NotABundle, match=f"preset.{min(preset)}"):
        parse_manifest(json.dumps({**data, "preset": preset}))
