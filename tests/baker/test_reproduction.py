"""What `hearth reproduce` reads from the provenance of a bundle, before it bakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.checks.reproduction import reproduce
from hearthd.baker.weights.source import NoWeights
from hearthd.bundle import write_manifest
from tests.bundle.example_manifests import EXAMPLE
from tests.conftest import Silent

MISSING = Path("no-such-file.gguf")


def refused(folder: Path, error: type[Exception], message: str, **changes: Any) -> None:
    write_manifest(folder, replace(EXAMPLE, provenance=replace(EXAMPLE.provenance, **changes)))
    with pytest.raises(error, match=message) as caught:
        reproduce(folder, MISSING, Silent())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": "2048"}, "--context: got '2048', expected a valid integer"),
        ({"slots": True}, "--slots: got True, expected a valid integer"),
        ({"max_kl": "0.1"}, "--max-kl: got '0.1', expected a valid number"),
        ({"quality": 9}, "--quality: got 9, expected no field of this name"),
    ],
)
def test_a_recorded_option_that_is_not_valid_is_named(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    refused(
        tmp_path, BakeError, rf"manifest\.json: provenance\.options: {message}", options=options
    )


def test_options_that_an_older_version_recorded_are_read(tmp_path: Path) -> None:
    options = {"precision": "native", "context": 2048, "slots": 4, "target": "host"}
    for more in ({}, {"activations": "int8"}, {"max_memory": 10**9, "max_kl": 0}):
        refused(tmp_path, NoWeights, "does not exist", options=options | more)


def test_a_model_is_a_family_or_an_architecture(tmp_path: Path) -> None:
    refused(tmp_path, NoWeights, "does not exist", model="mistral", options={})
    refused(tmp_path, NoWeights, "does not exist", model="llama", options={})
    refused(tmp_path, BakeError, "this version of Hearth cannot bake 'novel'", model="novel")


def test_a_merged_adapter_must_be_given(tmp_path: Path) -> None:
    refused(tmp_path, BakeError, "specify --adapter PATH", options={"adapter": "orders"})
