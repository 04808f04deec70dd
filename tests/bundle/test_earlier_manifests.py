"""Manifests that an earlier version of Hearth wrote are read, and written with the same text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hearthd.bundle import parse_manifest

# The examples of 30 November 2026. A new FORMAT needs new ones: its version refuses older bundles.
RECORDED: dict[str, str] = json.loads(
    (Path(__file__).parents[1] / "golden" / "manifests.json").read_bytes()
)


@pytest.mark.parametrize("example", RECORDED)
def test_a_field_that_is_new_is_omitted_while_it_has_its_default(example: str) -> None:
    text = RECORDED[example]
    assert parse_manifest(text).to_json() == text
